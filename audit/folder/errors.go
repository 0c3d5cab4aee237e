package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"lapse/audit/store"
)

// Errors that end a publisher, for errors.Is. Another Open fixes none of them by itself.
var (
	// ErrLocked: another process publishes into this folder.
	ErrLocked = errors.New("another process publishes into this folder")
	// ErrReplaced: a file is not as this publisher left it: somebody else has written to it, cut it, or put another in its place.
	ErrReplaced = errors.New("another program has changed the folder")
	// ErrNotDurable: a sync failed. What the system says about these bytes afterwards means nothing, so it is not asked again.
	ErrNotDurable = errors.New("the system does not say that what was written is on disk")
	// ErrTooLarge: a record is larger than any that the audit makes.
	ErrTooLarge = errors.New("record too large")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("publisher closed")
)

// A PlaceError says that a folder is not fit to keep topics.
type PlaceError struct {
	Path string
	Why  string // with what to do
}

func (e *PlaceError) Error() string { return fmt.Sprintf("keep topics in %s: %s", e.Path, e.Why) }

// A CorruptError says that a file is not what a publisher wrote.
type CorruptError struct {
	Path string
	Why  string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("read %s: %s", e.Path, e.Why) }

func corrupt(path, format string, args ...any) error {
	return &CorruptError{Path: path, Why: fmt.Sprintf(format, args...)}
}

// Terminal reports whether err is an error of this package after which a person must act before anything is tried again. The system's
// errors are net.Errors, so a caller that checks for those first takes a broken disk for a broken connection.
func Terminal(err error) bool {
	for _, end := range []error{ErrLocked, ErrReplaced, ErrNotDurable, ErrTooLarge, ErrClosed, errFile} {
		if errors.Is(err, end) {
			return true
		}
	}
	var place *PlaceError
	var broken *CorruptError
	var missing *store.MissingError
	var offset *store.OffsetError
	return errors.As(err, &place) || errors.As(err, &broken) || errors.As(err, &missing) || errors.As(err, &offset)
}

// errFile marks an error of the system about a file.
var errFile = errors.New("the folder cannot be used")

// fileError marks an error of the system. Other errors pass unmarked, for instance that the caller has stopped waiting.
func fileError(err error) error {
	var path *fs.PathError
	var number syscall.Errno
	if !errors.As(err, &path) && !errors.As(err, &number) || Terminal(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errFile, err)
}
