package replication

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// BenchmarkReadASlot reads one transaction of key-only deletes from a slot, again and again, and throws it away. The
// rate is the server's as much as ours: it makes a send per row.
func BenchmarkReadASlot(b *testing.B) {
	const rows = 500000
	db := pgtest.New(b, pgtest.Newest(b))
	conn := db.Connect(b)
	ctx := b.Context()
	if err := EnsurePublications(ctx, conn); err != nil {
		b.Fatal(err)
	}
	db.Exec(b, itemsTable)
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var oid uint32
		if err := tx.QueryRow(ctx, `select 'item'::regclass::oid`).Scan(&oid); err != nil {
			return err
		}
		return Join(ctx, tx, oid)
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := CreateSlot(ctx, conn, db.Name); err != nil {
		b.Fatal(err)
	}
	db.Exec(b, fmt.Sprintf(`insert into item select i, 'n' from generate_series(1, %d) i`, rows), `delete from item`)
	for name, address := range map[string]string{
		"tcp": db.URL, "unix": db.Server.SocketURL("postgres", db.Name),
	} {
		b.Run(name, func(b *testing.B) {
			var read int
			for b.Loop() {
				read += readOnce(b, address, db.Name)
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func readOnce(b *testing.B, url, slot string) (rows int) {
	b.Helper()
	s, err := Open(b.Context(), StreamConfig{ConnString: url, Slot: slot})
	if err != nil {
		b.Fatal(err)
	}
	for {
		m, err := s.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		switch m.Kind {
		case KindChange:
			rows++
		case KindCommit:
			if err := s.Close(context.WithoutCancel(b.Context())); err != nil {
				b.Fatal(err)
			}
			return rows
		case KindBegin, KindKeepalive:
		}
	}
}
