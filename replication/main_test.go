package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Wrap(m)) }

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// prepareDatabase makes the publications, then the tables by their definitions, published, then the slot, whose name is
// the database's.
func prepareDatabase(t *testing.T, db *pgtest.DB, tables map[string]string) *pgx.Conn {
	t.Helper()
	conn := db.Connect(t)
	if err := EnsurePublications(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for name, definition := range tables {
		exec(t, conn, definition)
		join(t, conn, name)
	}
	if _, err := CreateSlot(t.Context(), conn, db.Name); err != nil {
		t.Fatal(err)
	}
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v\nin: %s", err, sql)
		}
	}
}

func oidOf(t *testing.T, q Querier, name string) uint32 {
	t.Helper()
	return fixture.One[uint32](t, q, "select $1::regclass::oid", name)
}

func inTx(t *testing.T, conn *pgx.Conn, do func(tx pgx.Tx) error) {
	t.Helper()
	fixture.Must(t, pgx.BeginFunc(t.Context(), conn, do))
}

func join(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	inTx(t, conn, func(tx pgx.Tx) error { return Join(t.Context(), tx, oidOf(t, tx, name)) })
}

// openStream opens a stream of db's slot. It is closed when the test ends.
func openStream(t *testing.T, url, slot string) *Stream {
	t.Helper()
	s, err := Open(t.Context(), StreamConfig{ConnString: url, Slot: slot})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStream(t, s) })
	return s
}

func closeStream(t *testing.T, s *Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close stream: %v", err)
	}
}

// row is what a test remembers of a change.
type row struct {
	op    Op
	table string
	key   string // text of the first column, of the old row or else of the new one
}

func (r row) String() string { return fmt.Sprintf("%s %s %s", r.op, r.table, r.key) }

// transaction is what a test remembers of one.
type transaction struct {
	tx   Tx
	rows []row
}

func (t transaction) text() []string {
	var text []string
	for _, r := range t.rows {
		text = append(text, r.String())
	}
	return text
}

func remember(c *Change) row {
	r := row{op: c.Op, table: c.Relation.Schema + "." + c.Relation.Name}
	switch {
	case len(c.Old) > 0:
		r.key = string(c.Old[0].Bytes)
	case len(c.New) > 0:
		r.key = string(c.New[0].Bytes)
	}
	return r
}

// readTransaction reads up to the end of the next transaction that has changes.
func readTransaction(ctx context.Context, s *Stream) (transaction, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("no transaction came"))
	defer cancel()
	var got transaction
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return got, errors.Join(err, context.Cause(ctx))
		}
		switch m.Kind {
		case KindChange:
			if m.Change.Ordinal != uint32(len(got.rows)) {
				return got, fmt.Errorf("ordinal %d, want %d", m.Change.Ordinal, len(got.rows))
			}
			got.rows = append(got.rows, remember(m.Change))
		case KindCommit:
			if len(got.rows) > 0 {
				got.tx = *m.Tx
				return got, nil
			}
		case KindBegin, KindKeepalive:
		}
	}
}

func wantTransaction(t *testing.T, s *Stream, want ...string) transaction {
	t.Helper()
	got, err := readTransaction(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.text(), want) {
		t.Fatalf("got  %q\nwant %q", got.text(), want)
	}
	return got
}

var eventually = fixture.Eventually
