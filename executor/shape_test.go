package executor

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

func TestAShardThatIsBlockedPicksForAWhileAndThenGoesBackToRanges(t *testing.T) {
	t.Parallel()
	m := newPolicyMemory(&record.InForce{}, nil)
	m.sizing.size.rows = 100
	locked := &pgconn.PgError{Code: schemas.SQLStateLockNotAvailable}
	p := &record.InForce{Definition: functions.Definition{Expire: &expiry.Age{}}}
	shard := func(id int64) *batch.Lease { return &batch.Lease{Shard: id} }
	next := func(n int) string { // the shapes of n batches that get through
		var got []string
		for range n {
			o := m.sizing.order(shard(1), p, batch.Order{Limit: 100}, 100)
			if o.Careful != (o.Shape == functions.PicksInstead(o.Shape)) {
				t.Errorf("a %s batch is careful: %v", o.Shape, o.Careful)
			}
			got = append(got, o.Shape)
			m.through(&record.InForce{}, 1, o, &batch.Result{Shape: o.Shape, PassOver: true, First: true}, 0)
		}
		return strings.Join(got, " ")
	}
	block := func() bool {
		return m.sizing.blocked(1, m.sizing.order(shard(1), p, batch.Order{Limit: 100}, 100), locked)
	}
	if got := next(2); got != "range range" {
		t.Errorf("at first %s", got)
	}
	if !block() {
		t.Error("a range that is blocked is not followed by a pick at once")
	}
	if got := next(1); got != "pick" || !block() {
		t.Errorf("after one: %s", got)
	}
	if got := next(2); got != "pick pick" || !block() {
		t.Errorf("after the second in a row: %s", got)
	}
	if got := next(6); got != "pick pick pick pick range range" {
		t.Errorf("after the third in a row: %s", got)
	}
	for range 20 {
		if m.sizing.blocked(1, batch.Order{}, locked); len(next(mostPicks)) == 0 {
			t.Fatal("nothing")
		}
	}
	if got := m.sizing.order(shard(1), p, batch.Order{Limit: 100}, 100).Shape; got != functions.ShapeRange {
		t.Errorf("after %d picks: %s", mostPicks, got)
	}
	if m.sizing.order(shard(2), p, batch.Order{Limit: 100}, 100).Shape != functions.ShapeRange || m.sizing.size.rows != 100 {
		t.Error("another shard, or the size of batches, knows of it")
	}
	if m.sizing.blocked(1, batch.Order{Careful: true}, locked) || m.sizing.blocked(1, batch.Order{StepOver: true}, locked) || m.sizing.size.rows != 100 {
		t.Errorf("a careful batch that is blocked is followed by another at once, or halved: %d rows", m.sizing.size.rows)
	}
	if m.sizing.blocked(1, batch.Order{}, &pgconn.PgError{Code: "40P01"}) {
		t.Error("a deadlock leads to a pick")
	}
}

// Locked rows cost a run no pause and leave nothing else undone: the batch after the one that waited passes over them.
func TestLockedRowsKeepARunFromNothingElse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 500, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50")))
		e := newExecutor(t, db)
		err := pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "select from sessions where id in (30, 222, 223, 480) for update"); err != nil {
				return err
			}
			if s := once(t, e); only(t, s).Deleted != 496 || !only(t, s).LeftBehind {
				t.Errorf("with four rows locked: %+v", only(t, s))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := counted(t, e, "lapse_batches_total", "retry"); got == 0 {
			t.Error("no range met a locked row: the test shows nothing")
		}
		if s := once(t, e, "p"); only(t, s).Deleted != 4 || only(t, s).LeftBehind {
			t.Errorf("with nothing locked: %+v", only(t, s))
		}
	})
}
