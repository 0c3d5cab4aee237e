//go:build unix

package audit

import (
	"os"
	"syscall"
)

// lockFile keeps other processes from a file until it is closed. It does not wait.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
