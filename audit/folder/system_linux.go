package folder

import (
	"fmt"
	"os"
	"syscall"
)

// File systems that other machines may write too, or whose fsync is not reliable, by their statfs type.
var elsewhere = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x00c36400: "Ceph", 0x5346414f: "AFS",
	0x73757245: "Coda", 0x47504653: "GPFS", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x65735546: "FUSE",
}

const inMemory = 0x01021994 // tmpfs

// checkSystem refuses a file system that is not local to this machine.
func checkSystem(dir string) (warning string, err error) {
	var is syscall.Statfs_t
	if err := syscall.Statfs(dir, &is); err != nil {
		return "", &PlaceError{dir, err.Error()}
	}
	kind := int64(is.Type) & 0xffffffff //nolint:unconvert // it is 32 bits wide elsewhere
	if name, known := elsewhere[kind]; known {
		return "", &PlaceError{dir, fmt.Sprintf("it is on %s: locks and fsync are sure on a disk of this machine only: name a folder there", name)}
	}
	if kind == inMemory {
		return "it is in memory (tmpfs): the evidence is gone when the machine stops", nil
	}
	return "", nil
}

// Free returns how many bytes of a folder's file system this process may still use, and its size.
func Free(dir string) (free, size uint64, err error) {
	var is syscall.Statfs_t
	if err := syscall.Statfs(dir, &is); err != nil {
		return 0, 0, err
	}
	return is.Bavail * uint64(is.Bsize), is.Blocks * uint64(is.Bsize), nil //nolint:unconvert // signed elsewhere
}

// forget makes the system drop its cache of a file: after a failed fsync the cache may differ from the disk.
func forget(file *os.File) {
	const dontNeed = 4                                                                 // POSIX_FADV_DONTNEED
	_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, dontNeed, 0, 0) // advice: nothing depends on an answer
}
