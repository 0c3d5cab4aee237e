package child

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ownerFile is locked by the process that owns the folder, for as long as it lives.
const ownerFile = ".owner"

// young is how long a folder is left alone whatever its lock says: its owner may be about to take it.
const young = 10 * time.Second

// Folder is a temporary folder that goes with its process.
type Folder struct {
	Path string
	lock *os.File
}

// NewFolder makes a folder for data in $LAPSE_TMPDIR, or else in the system's temporary folder, and removes those that ended
// processes left there under the same kind. The path is short enough to hold a Unix socket, unless that of the folder around it is long.
func NewFolder(kind string) (*Folder, error) {
	return newFolder(cmp.Or(os.Getenv("LAPSE_TMPDIR"), os.TempDir()), kind)
}

// NewProgramFolder is NewFolder in the system's temporary folder in any case: one in memory may refuse to have programs run.
func NewProgramFolder(kind string) (*Folder, error) { return newFolder(os.TempDir(), kind) }

func newFolder(dir, kind string) (*Folder, error) {
	sweep(dir, kind)
	path, err := os.MkdirTemp(dir, prefix(kind)+"*")
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), lock.Close(), os.RemoveAll(path))
	}
	return &Folder{Path: path, lock: lock}, nil
}

// Remove removes the folder and all that is in it.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close())
}

func prefix(kind string) string { return "lapse-" + kind + "-" }

// sweep removes the folders of processes that were killed. Whatever goes wrong, the next one tries again.
func sweep(dir, kind string) {
	folders, _ := filepath.Glob(filepath.Join(dir, prefix(kind)+"*"))
	for _, path := range folders {
		owner := filepath.Join(path, ownerFile)
		info, err := os.Stat(owner)
		if err != nil || time.Since(info.ModTime()) < young {
			continue
		}
		lock, err := os.Open(owner)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
