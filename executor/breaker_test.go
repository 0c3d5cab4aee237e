package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

func TestAPolicyOfWhichTooMuchIsDueDeletesNothingUntilSomebodySaysYes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 70)
		db.Exec(t, "alter table sessions set (autovacuum_enabled = off)") // it judges by the statistics, which would count 118 rows in between
		arm(t, db, policies(policy("p", "public.sessions")))
		setLimits(t, db, `{"max_fraction": 0.29}`)
		e := newExecutor(t, db)
		stops := func(when string) {
			due := one[int](t, db, "select count(*) from sessions where at < now() - interval '30 days'")
			t.Helper()
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			var refusal *guard.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != guard.TooMuchDue || only(t, s).Outcome != Stopped {
				t.Errorf("%s: %+v, %v, want that it stops and asks", when, s, err)
			}
			if n := one[int](t, db, "select count(*) from sessions where at < now() - interval '30 days'"); n != due {
				t.Fatalf("%s: of %d due rows %d are left", when, due, n)
			}
		}
		stops("30 of 100 rows are due")
		if got := counted(t, e, "lapse_limit_reached_total", "p", string(guard.TooMuchDue)); got != 1 {
			t.Errorf("the metric says %v", got)
		}
		e = newExecutor(t, db)
		stops("another executor")
		if n := one[int](t, db, "select count(*) from lapse.run"); n != 0 {
			t.Errorf("%d runs were opened", n)
		}
		accept := func(rows int64) {
			t.Helper()
			list, err := record.LoadInForce(t.Context(), connectTo(t, db))
			if err != nil || list[0].Tripped == nil {
				t.Fatalf("in force is %+v, %v", list, err)
			}
			if err := pgx.BeginFunc(t.Context(), connectTo(t, db), func(tx pgx.Tx) error { return run.AcceptTrip(t.Context(), tx, &list[0], rows) }); err != nil {
				t.Fatal(err)
			}
		}
		// Fewer than were due go, and it asks again, by the catalog alone: nobody counts for it.
		accept(12)
		if s := only(t, once(t, e, "p")); s.Deleted != 12 || s.Outcome != Limited || !strings.HasPrefix(s.Limit, limitAccept+": 12 rows were deleted") {
			t.Errorf("12 of 30 are accepted: %+v, want 12 gone", s)
		}
		list, err := record.LoadInForce(t.Context(), connectTo(t, db))
		if err != nil || list[0].Tripped == nil || list[0].Tripped.Due != 18 || list[0].Tripped.Rows != 88 || list[0].Accepted != 0 {
			t.Errorf("after it in force is %+v, %v", list, err)
		}
		owned(t, db, "insert into sessions select 1000 + g, now() - interval '40 days' from generate_series(1, 30) g")
		stops("12 were accepted, once")
		// As many as the breaker said go, and no more, though more are due by now; the others are judged as any.
		accept(18)
		if s := only(t, once(t, e, "p")); s.Deleted != 18 || s.Outcome != Limited {
			t.Errorf("18 that the breaker spoke of are accepted, and 48 are due: %+v", s)
		}
		stops("30 of 100 are due, which is too much again")
		accept(1000)
		if s := only(t, once(t, e, "p")); s.Deleted != 30 || s.Outcome != Finished {
			t.Errorf("more are accepted than are due: %+v, want all 30", s)
		}
		owned(t, db, "insert into sessions select 2000 + g, now() - interval '40 days' from generate_series(1, 55) g")
		stops("accepted is accepted once")
	})
}

func connectTo(t *testing.T, db *pgtest.DB) *pgx.Conn {
	t.Helper()
	conn := db.Connect(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestWhatCannotBeHeldAgainstMaxFractionIsNotDeleted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table a (id int primary key, at timestamptz) with (autovacuum_enabled = off)", "insert into a select g, now() - interval '40 days' from generate_series(1, 5) g")
		arm(t, db, policies(policy("a", "public.a")))
		setLimits(t, db, `{"max_fraction": 0.5}`)
		e := newExecutor(t, db)
		if s, err := e.Once(t.Context(), nil); err == nil || only(t, s).Outcome != Stopped || only(t, s).Deleted != 0 {
			t.Errorf("a table that nobody has counted: %+v, %v", s, err)
		}
		holder := connectTo(t, db)
		if _, err := holder.Exec(t.Context(), "analyze a; begin; lock table a in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		w := newTestWorker(t, db)
		s, err := batch.Connect(t.Context(), w.config.Database, w.holder, w.config.Limits.BatchTime, w.config.Limits.answerTime)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		w.session = s
		list, err := record.LoadInForce(t.Context(), s.Control)
		if err != nil {
			t.Fatal(err)
		}
		turn := newTurn(&list[0], w.memory(&list[0]))
		if end, err := w.judge(t.Context(), turn); end != turnBlocked || err != nil {
			t.Errorf("while somebody has the table locked: %v, %v, want another try", end, err)
		}
		why := func() string {
			lines := w.reportLines(list, &guard.Answer{})
			return lines[len(lines)-1].state + " " + lines[len(lines)-1].reason
		}
		if got := why(); !strings.HasPrefix(got, "waiting "+throttleLock+": ") {
			t.Errorf("while somebody has the table locked status says %q", got)
		}
		if _, err := holder.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		// A lock on another table is not waited for.
		db.Exec(t, "create table other (id int)")
		db.Exec(t, "update pg_class set reltuples = 100 where oid = 'pg_class'::regclass") // a database of few tables
		if _, err := holder.Exec(t.Context(), "begin; lock table other in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		if end, err := w.judge(t.Context(), turn); end != turnRefused || err != nil {
			t.Errorf("when all rows are due: %v, %v, want a refusal", end, err)
		}
		if got := why(); strings.Contains(got, throttleLock) {
			t.Errorf("when nobody has it locked any more status says %q", got)
		}
		app := db.ConnectAs(t, appRole)
		if _, err := app.Exec(t.Context(), "select lapse.trip(1, 1, 'max_fraction', 1, 1, 0)"); schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
			t.Errorf("the application opens a breaker: %v", err)
		}
	})
}

func TestMaxFractionOfATableThatNobodyAnalyzedIsJudgedByCounting(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table a (id int primary key, at timestamptz) with (autovacuum_enabled = off)", "create index on a (at, id)",
			"insert into a select g, now() - case when g <= 20 then interval '40 days' else interval '1 day' end from generate_series(1, 100) g")
		arm(t, db, policies(policy("p", "public.a")))
		setLimits(t, db, `{"max_fraction": 0.2}`)
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 20 {
			t.Fatalf("20 of 100 are due: %+v", s)
		}
		owned(t, db, "update a set at = now() - interval '40 days' where id <= 40")
		var refusal *guard.Refusal
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"}); !errors.As(err, &refusal) || !strings.Contains(refusal.Detail, "20 of about 80 rows") {
			t.Errorf("20 of 80 are due: %v", err)
		}
		if n := one[int](t, db, "select count(*) from a"); n != 80 {
			t.Errorf("%d rows are left", n)
		}
		db.Exec(t, "delete from lapse.breaker")
		owned(t, db, "update a set at = now() - interval '40 days'")
		setLimits(t, db, `{"max_fraction": 1}`)
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 80 {
			t.Errorf("all may go: %+v", s)
		}
		if n := one[int](t, db, "select count(*) from pg_class where oid = 'a'::regclass and reltuples >= 0"); n != 0 {
			t.Error("somebody has analyzed it")
		}
	})
}

// The yes to twelve rows of thirty ends with eight gone: a partition is locked. More may not go without another yes.
func TestARunThatEndsShortOfWhatWasAcceptedLeavesTheBreakerOpen(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table parts (id bigint, at timestamptz, primary key (id, at)) partition by range (at)",
			"create table old partition of parts for values from (minvalue) to (now() - interval '50 days')",
			"create table young partition of parts for values from (now() - interval '50 days') to (maxvalue)",
			"insert into parts select g, now() - case when g <= 8 then interval '60 days' else interval '40 days' end from generate_series(1, 30) g",
			"create index on parts (at, id)", "analyze parts, old, young")
		arm(t, db, policies(policy("p", "public.parts")))
		setLimits(t, db, `{"max_fraction": 0.5}`)
		asks := func(when string, due int64) {
			t.Helper()
			list, err := record.LoadInForce(t.Context(), connectTo(t, db))
			if err != nil || list[0].Tripped == nil || list[0].Tripped.Due != due || list[0].Accepted != 0 {
				t.Fatalf("%s: in force is %+v, %v, want that it asks about %d rows", when, list[0].Tripped, err, due)
			}
		}
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"}); err == nil {
			t.Fatal("30 of 30 are due, and nobody asks")
		}
		asks("30 of 30 are due", 30)
		accept := func() { db.Exec(t, "update lapse.breaker set accepted = 12, accepted_at = clock_timestamp()") }
		holder := connectTo(t, db)
		accept()
		if _, err := holder.Exec(t.Context(), "begin; lock table young in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 8 {
			t.Errorf("22 of 30 are locked: %+v, want the other 8 gone", s)
		}
		if _, err := holder.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		asks("after 8 of 12 that were accepted", 22)

		// A run that nobody is left to end: the next call ends it, and opens none.
		accept()
		list, err := record.LoadInForce(t.Context(), connectTo(t, db))
		if err != nil {
			t.Fatal(err)
		}
		executor := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
		if _, err := run.Open(t.Context(), executor, &list[0], time.Now, run.Options{Due: []uint32{}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var not *run.NotInForceError
			if r, err := run.Open(t.Context(), executor, &list[0], time.Now, run.Options{}); !errors.As(err, &not) {
				t.Errorf("after a run without shards: %+v, %v, want none", r, err)
			}
			asks("after a run without shards", 22)
		}
		accept()
		owned(t, db, "delete from old", "delete from young where id > 15")
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 7 || s.Outcome != Finished {
			t.Errorf("7 are due, and 12 accepted: %+v", s)
		}
		if list, err := record.LoadInForce(t.Context(), connectTo(t, db)); err != nil || list[0].Tripped != nil {
			t.Errorf("nothing is due any more, and it asks: %+v, %v", list[0].Tripped, err)
		}
	})
}
