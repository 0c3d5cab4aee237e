//go:build !unix

package audit

import "os"

// lockFile locks nothing on systems without flock.
func lockFile(*os.File) error { return nil }
