package replication_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/replication"
)

// A program that prints which rows are deleted, and wakes itself to say that it is alive. The publications, the slot and the
// table's membership are there already: EnsurePublications, EnsureSlot and Join.
func ExampleOpen() {
	ctx := context.Background()
	stream, err := replication.Open(ctx, replication.StreamConfig{ConnString: "postgres://reader@localhost/app", Slot: "deletes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = stream.Close(ctx) }()
	timer := time.AfterFunc(time.Minute, stream.Wake)
	defer timer.Stop()
	for {
		message, err := stream.Next(ctx)
		switch {
		case errors.Is(err, replication.ErrWoken):
			fmt.Println("alive")
			timer.Reset(time.Minute)
			continue
		case err != nil:
			fmt.Println(err, replication.GradeOf(err)) // retry: open another stream after a pause
			return
		}
		switch message.Kind {
		case replication.KindChange:
			fmt.Println(message.Change.Op, message.Change.Relation.Name, message.Tx.Position(message.Change.Ordinal))
		case replication.KindCommit:
			stream.Confirm(message.Tx.EndLSN) // what was printed need not be sent again
		case replication.KindKeepalive:
			if !message.Open {
				stream.Confirm(message.WALEnd)
			}
		case replication.KindBegin:
		}
		if message.Stopping && stream.CheckStop(0) != nil {
			return // and Close lets the server stop
		}
	}
}
