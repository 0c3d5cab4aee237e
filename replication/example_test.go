package replication_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/replication"
)

// A program that prints which rows of a table are deleted, and wakes itself to say that it is alive. It needs nothing else of
// Lapse, neither its schema nor its commands.
func ExampleOpen() {
	ctx := context.Background()
	const url = "postgres://reader@localhost/app"
	if err := publish(ctx, url, "public.sessions", "deletes"); err != nil {
		fmt.Println(err)
		return
	}
	for { // an error of grade Retry is gone after a pause: open another stream
		err := printDeletes(ctx, os.Stdout, url, "deletes")
		fmt.Println(err)
		if replication.GradeOf(err) != replication.Retry {
			return
		}
		time.Sleep(time.Second)
	}
}

// publish is done once. It finds what is there already.
func publish(ctx context.Context, url, table, slot string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := replication.EnsurePublications(ctx, conn); err != nil {
		return err
	}
	if _, _, err := replication.EnsureSlot(ctx, conn, slot); err != nil { // after the publications, or it is stuck for good
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var oid uint32
		if err := tx.QueryRow(ctx, `select $1::regclass::oid`, table).Scan(&oid); err != nil {
			return err
		}
		return replication.Join(ctx, tx, oid)
	})
}

// printDeletes prints until something fails, the server stops or the context ends.
func printDeletes(ctx context.Context, out io.Writer, url, slot string) error {
	stream, err := replication.Open(ctx, replication.StreamConfig{ConnString: url, Slot: slot})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	timer := time.AfterFunc(time.Minute, stream.Wake)
	defer timer.Stop()
	for rows := 0; ; {
		message, err := stream.Next(ctx)
		switch {
		case errors.Is(err, replication.ErrWoken):
			_, _ = fmt.Fprintln(out, "alive")
			timer.Reset(time.Minute)
			continue
		case err != nil:
			return err
		}
		switch message.Kind {
		case replication.KindChange:
			rows++
			_, err = fmt.Fprintln(out, message.Change.Op, message.Change.Relation.Name, keyOf(message.Change))
		case replication.KindCommit:
			if rows > 0 { // a transaction that changed nothing published may come too
				_, err = fmt.Fprintln(out, "commit")
			}
			if rows = 0; err == nil {
				stream.Confirm(message.Tx.EndLSN) // what was printed need not be sent again
			}
		case replication.KindKeepalive:
			if !message.Open {
				stream.Confirm(message.WALEnd)
			}
		case replication.KindBegin:
		}
		if err != nil {
			return err
		}
		if message.Stopping {
			if err := stream.CheckStop(0); err != nil {
				return err // and Close lets the server stop
			}
		}
	}
}

// keyOf is the replica identity of the row; a truncate has none.
func keyOf(change *replication.Change) (key []string) {
	for i, value := range change.Old {
		if change.Relation.Columns[i].Key {
			key = append(key, string(value.Bytes))
		}
	}
	return key
}
