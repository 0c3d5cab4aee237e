package replication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/schemas"
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

// BenchmarkNext reads key-only deletes of one transaction without end from a loopback connection. Each operation is one row.
func BenchmarkNext(b *testing.B) {
	here, there := loopback(b)
	ctx, cancel := context.WithCancel(b.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		first := slices.Concat(
			dataMessage(1, relationMessage(1, "public", "item", Column{Name: "id", TypeOID: 20, TypeMod: -1, Key: true})),
			dataMessage(1, beginMessage(100, 7)))
		rows := bytes.Repeat(dataMessage(1, deleteMessage(1, 'K', "1234567")), 4000)
		for _, err := there.Write(first); err == nil && ctx.Err() == nil; {
			_, err = there.Write(rows)
		}
	})
	s := streamOn(b, here)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	_ = s.fail(errClosed)
	_ = there.Close()
	writing.Wait()
}

// loopback is a TCP connection of this machine with itself.
func loopback(tb testing.TB) (here, there net.Conn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if here, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	return here, there
}

// streamOn is a stream of whatever comes on a connection.
func streamOn(tb testing.TB, conn net.Conn) *Stream {
	tb.Helper()
	config, err := pgconn.ParseConfig("host=nowhere")
	if err != nil {
		tb.Fatal(err)
	}
	w := newWire(conn)
	connected, err := pgconn.Construct(&pgconn.HijackedConn{Conn: w, Config: config})
	if err != nil {
		tb.Fatal(err)
	}
	return &Stream{
		conn: connected, wire: w, log: slog.New(slog.DiscardHandler), decoder: newDecoder(func(schemas.LSN) schemas.Timeline { return 1 }), liveness: newLiveness(), wakeups: make(chan struct{}, 1),
		status: statuses{interval: time.Hour, sentAt: time.Now()},
	}
}

func dataMessage(at schemas.LSN, message encoder) []byte {
	return framed('d', dataFrame(at, message).body)
}
