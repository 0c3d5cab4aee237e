// Package store is the interface through which audit reads topics, whether brokers (audit/kafka) or a folder of this machine (audit/folder)
// keep them. It has the types that both share, and nothing else.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"lapse/schemas"
)

// Client reads topics. It writes nothing, and may be used while a publisher writes. Safe for concurrent use.
type Client interface {
	// Known reports whether a topic exists now.
	Known(ctx context.Context, name string) (bool, error)
	// Offsets returns the bounds of each partition of a topic, by partition. The error for a missing topic is a *MissingError.
	Offsets(ctx context.Context, name string) ([]Offsets, error)
	// Has reports whether a partition with these bounds still has what was acknowledged up to an end. Records that retention has deleted
	// count as present.
	Has(ctx context.Context, name string, partition int32, bounds Offsets, end End) (bool, error)
	// Backward calls each with the records of a partition below offset end, the newest first, until each returns false or an error, or
	// there are no more. End -1 is the current end. The record's memory is the callee's. Fences and foreign records are among them. The
	// error for a topic that is not there is a *MissingError.
	Backward(ctx context.Context, name string, partition int32, end int64, each func(rec *schemas.Record, offset int64) (goOn bool, err error)) error
	// Reader reads a partition's records from offset from up to offset to, which is not included; without end if to is NoEnd.
	Reader(name string, partition int32, from, to int64) Reader
	Close()
}

// Reader reads one partition in order. Use it in one goroutine. It need not be closed.
type Reader interface {
	// Next returns the next record and its offset, or io.EOF at the end. It waits for records that are not there yet until ctx ends. Offsets
	// grow, and may have gaps. The record's memory is the caller's. The error for an offset that the partition does not have is an
	// *OffsetError: Next never skips records that retention has deleted.
	Next(ctx context.Context) (schemas.Record, int64, error)
}

// NoEnd is the upper bound of a Reader that waits for future records.
const NoEnd int64 = -1

// Each calls each with every record of a reader. It ends with the first error of each.
func Each(ctx context.Context, r Reader, each func(rec *schemas.Record, offset int64) error) error {
	for {
		rec, offset, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(&rec, offset); err != nil {
			return err
		}
	}
}

// Record is a record and its offset in the partition.
type Record struct {
	Record schemas.Record
	Offset int64
}

// Offsets are the bounds of a partition: First is the oldest offset that retention has left, End the offset that the next
// record gets. First equals End in an empty partition.
type Offsets struct{ First, End int64 }

// End is the end of the records that a publisher has acknowledged in a partition: after what this producer wrote under this epoch. No two
// publishers have the same epoch, so records that a later one writes in place of lost ones can be told from them.
type End struct {
	Offset   int64
	Producer int64
	Epoch    int32
}

// A MissingError says that a topic is not there, or that the login may not see it: Kafka does not tell which.
type MissingError struct{ Topic string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("topic %q does not exist, or this login may not describe it", e.Topic)
}

// An OffsetError says that the offset asked for is not in the partition: retention has deleted it, or it was never there.
type OffsetError struct {
	Topic     string
	Partition int32
	Offset    int64 // the requested offset
	Offsets         // the existing offsets
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("offset %d of %s/%d is not between the first, %d, and the end, %d",
		e.Offset, e.Topic, e.Partition, e.First, e.End)
}
