//go:build !linux

package folder

import (
	"errors"
	"os"
)

// checkSystem cannot tell here which file systems are of this machine alone.
func checkSystem(string) (warning string, err error) { return "", nil }

// Free is not known here.
func Free(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }

func forget(*os.File) {}
