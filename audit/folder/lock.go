package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"lapse/internal/backoff"
)

// lockPatience is how long a publisher waits for the one before, which may be closing.
const lockPatience = 10 * time.Second

// lock keeps other publishers from a folder until the file is closed, or the process is gone.
func lock(ctx context.Context, dir string, patience time.Duration) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, err
	}
	pauses, began := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}, time.Now()
	for {
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return file, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(err, file.Close())
		case time.Since(began) >= patience:
			return nil, errors.Join(fmt.Errorf("publish into %s: %w: stop that one, or give this database a folder of its own", dir, ErrLocked), file.Close())
		}
		if err := pauses.Wait(ctx); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
}
