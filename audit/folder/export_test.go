package folder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Faulty has a publisher's disk fail where write or sync say so.
func (c *Config) Faulty(write func(file *os.File, b []byte, at int64) (int, error), sync func(*os.File) error) {
	d := c.small()
	if write != nil {
		d.write = write
	}
	if sync != nil {
		d.sync = sync
	}
}

// Segments has a publisher begin a segment after that many bytes.
func (c *Config) Segments(length int64) { c.small().segment = length }

func (c *Config) small() *disk {
	if c.disk == nil {
		c.disk = systemDisk()
		c.disk.retry, c.disk.lockPatience, c.disk.sweep = 10*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	}
	return c.disk
}

// Quick shortens all waits.
func (c *Config) Quick() { c.small() }

var (
	AppendFrame = appendFrame
	CutFrame    = cutFrame
)

// DecodeFrame reads a frame that was cut.
func DecodeFrame(frame []byte) error {
	_, err := decode(frame, "", 0)
	return err
}

// Locked reports whether a publisher has a folder at this moment.
func Locked(dir string) bool {
	file, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // and with it what it may have locked
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
