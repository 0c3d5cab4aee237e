//go:build unix

package audit

import (
	"os"
	"syscall"
)

// lockFile locks out other processes until the file is closed. It does not wait.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
