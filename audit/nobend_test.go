package audit_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// What must not be taken for a bend.

// listening keeps what an auditor logs.
func listening(t *testing.T) (*testLog, func(*audit.Config)) {
	t.Helper()
	log := &testLog{t: t}
	return log, func(c *audit.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

const watches = "watching whether another auditor writes"

func TestCommitsThatACrashLostWereNeverPublished(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		log, logged := listening(t)
		run := b.start(t, hasty, logged)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		b.beat(t)
		lost := 0
		for range 4 {
			b.work(t)
			b.catchUp(t, b.w.conn)
			lost += b.loseCommits(t)
		}
		b.catchUp(t, b.w.conn)
		run.end(t)
		t.Logf("%d commits were lost", lost)
		if lost == 0 {
			t.Error("no commit was lost: the test shows nothing")
		}
		if strings.Contains(log.String(), watches) {
			t.Error("an auditor that lives has watched for another")
		}
		b.holds(t)
	}, pgtest.Settings(map[string]string{"wal_writer_delay": "10s"}))
}

// loseCommits deletes rows without waiting for the disk, and kills the server. It takes what the server still has into the
// books, and returns how many commits it has lost.
func (b *bender) loseCommits(t *testing.T) int {
	t.Helper()
	ids, err := b.w.rows(t.Context(), 40)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.w.conn.Exec(t.Context(), `set synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids { // some of them are flushed, since the WAL's pages are written when they are full
		if _, err := b.w.conn.Exec(t.Context(), deleteSessions, []int64{id}); err != nil {
			t.Fatal(err)
		}
		if i == 20 {
			b.db.Exec(t, `insert into scratch values (1); delete from scratch`)
		}
	}
	b.lives[rowKey("public.scratch", `{"id":"1"}`)+" user"]++
	if err := b.db.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.w.conn = b.db.Connect(t)
	rows, err := b.w.conn.Query(t.Context(), `select id from sessions where id = any ($1)`, ids)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if slices.Contains(left, id) {
			continue
		}
		for key := range causesOf([]int64{id}, "user") {
			b.lives[key+" user"]++
		}
	}
	return len(left)
}

//lapse:long
func TestARestartOfServerAndAuditorIsWatchedAndNoBend(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.run(t) // an empty log, twice
		b.run(t)
		b.beat(t)
		b.work(t)
		b.run(t)
		if err := b.db.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := b.db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.w.conn = b.db.Connect(t)
		for range 3 { // much is written while the auditor is away
			b.grow(t)
			b.work(t)
			b.beat(t)
		}
		b.db.Exec(t, `checkpoint`)
		b.beat(t) // what comes last is published: an auditor is soon told of it
		log, logged := listening(t)
		b.run(t, logged)
		if !strings.Contains(log.String(), watches) {
			t.Error("nobody has watched for another auditor")
		}
		b.settled(t)
	})
}

// TestALedgerRowOfALostFutureVerifiesNothing replays a true ledger row of the key's holder when its xid comes round.
func TestALedgerRowOfALostFutureVerifiesNothing(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.beat(t)
		ids, err := b.w.rows(t.Context(), 20)
		if err != nil {
			t.Fatal(err)
		}
		b.run(t)
		copied := b.snapshot(t, pgserver.Frozen)
		xid := b.burn(t, 300)
		b.deleteAgain(t, ids, system)
		b.run(t)
		var row, result string
		err = b.w.conn.QueryRow(t.Context(), `
			select row_to_json(b)::text, row_to_json(r)::text from lapse.batch b join lapse.batch_result r using (batch)
			 where b.xid::text::bigint > $1 order by b.xid::text::bigint desc limit 1`, xid).Scan(&row, &result)
		if err != nil {
			t.Fatal(err)
		}

		b.restore(t, copied)
		b.accept(t, b.isBent(t))
		b.run(t)
		b.burnTo(t, row)
		err = pgx.BeginFunc(t.Context(), b.w.conn, func(tx pgx.Tx) error {
			for _, do := range []struct {
				sql string
				arg any
			}{
				{`insert into lapse.batch overriding system value select * from json_populate_record(null::lapse.batch, $1::text::json)`, row},
				{deleteSessions, ids},
				{`insert into lapse.batch_result overriding system value
				  select * from json_populate_record(null::lapse.batch_result, $1::text::json)`, result},
			} {
				if _, err := tx.Exec(t.Context(), do.sql, do.arg); err != nil {
					return err
				}
			}
			var same bool
			err := tx.QueryRow(t.Context(), `
				select b.xid = pg_current_xact_id() from json_populate_record(null::lapse.batch, $1::text::json) b`, row).Scan(&same)
			if err == nil && !same {
				t.Error("the replay is not in the transaction that the row claims")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for key := range causesOf(ids, "unverified") {
			b.lives[key+" unverified"]++
		}
		b.settled(t, "rewind accepted")
	}, pgtest.Settings(map[string]string{"autovacuum": "off"}))
}

// burn takes transaction numbers, and returns the last.
func (b *bender) burn(t *testing.T, n int) (xid int64) {
	t.Helper()
	for range n {
		if err := b.w.conn.QueryRow(t.Context(), `select pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
			t.Fatal(err)
		}
	}
	return xid
}

// burnTo takes transaction numbers up to the one that a ledger row claims.
func (b *bender) burnTo(t *testing.T, row string) {
	t.Helper()
	var claimed int64
	err := b.w.conn.QueryRow(t.Context(), `
		select b.xid::text::bigint from json_populate_record(null::lapse.batch, $1::text::json) b`, row).Scan(&claimed)
	if err != nil {
		t.Fatal(err)
	}
	now := b.burn(t, 1)
	if now >= claimed {
		t.Fatalf("transaction %d is past %d", now, claimed)
	}
	b.burn(t, int(claimed-now-1))
}
