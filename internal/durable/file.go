// Package durable writes small files that a crash leaves whole.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Temporary is the pattern of the names, for os.CreateTemp, of files that are being written. A crash may leave one.
const Temporary = ".writing-*"

// Write puts a file of mode 0600 in place of another. After a crash there is one of them, whole; without an error the new one is on
// disk. Several processes may write the same file.
func Write(name string, text []byte) error {
	path := filepath.Dir(name)
	file, err := os.CreateTemp(path, Temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
