package folder

import (
	"log/slog"
	"os"
	"time"

	"lapse/schemas"
)

// Topic describes a topic.
type Topic struct {
	Name       string
	Partitions int
	// Retention is how long records are kept, from their publication; 0 or less: forever. Whole segments are deleted, and never the last one.
	Retention time.Duration
	// Forever refuses a topic that has lost its beginning.
	Forever bool
	// Tree says that the topic is the log: its tree is published in TreeDir.
	Tree bool
}

// Config of a Publisher.
type Config struct {
	// Dir is created with mode 0700 if it does not exist.
	Dir    string
	Topics []Topic

	// FenceHeaders are put on every fence, after lapse-op.
	FenceHeaders []schemas.Header
	// Ours tells our records from foreign ones for Publisher.Last. nil accepts every record that is no fence.
	Ours func(*schemas.Record) bool

	// MaxBuffered is how many bytes of records may wait to be durable. 0 means 4 MiB.
	MaxBuffered int

	Logger *slog.Logger // nil: nothing is logged

	disk *disk // for tests; nil means the system's
}

// disk is what may fail. Tests make it fail.
type disk struct {
	write        func(file *os.File, b []byte, at int64) (int, error)
	sync         func(file *os.File) error
	segment      int64         // from this length on, a segment is followed by another
	retry        time.Duration // between two tries while there is no room
	lockPatience time.Duration
	sweep        time.Duration // between two checks for what retention deletes
}

func systemDisk() *disk {
	return &disk{
		write: func(file *os.File, b []byte, at int64) (int, error) { return file.WriteAt(b, at) },
		sync:  (*os.File).Sync, segment: 8 << 20, retry: time.Second, lockPatience: lockPatience, sweep: time.Hour,
	}
}

func (c Config) withDefaults() Config {
	if c.MaxBuffered == 0 {
		c.MaxBuffered = 4 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.disk == nil {
		c.disk = systemDisk()
	}
	return c
}
