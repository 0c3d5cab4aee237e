//go:build !unix

package audit

import "os"

// lockFile is for systems that have flock. Elsewhere nobody is kept from the file.
func lockFile(*os.File) error { return nil }
