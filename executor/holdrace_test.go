package executor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/schemas"
)

// openBatch makes one batch of the shard and leaves its transaction open. commit lets it go on to COMMIT, and returns its error.
func (w *work) openBatch(t testing.TB, limit int) (done batch.Result, commit func() error, err error) {
	t.Helper()
	patient(t, w)
	called, ended, goOn := make(chan batch.Result), make(chan error, 1), make(chan struct{})
	go func() {
		_, _, err := w.Delete(context.WithoutCancel(t.Context()), w.a, testKey, batch.Order{Limit: limit, Follows: func(done *batch.Result) bool {
			called <- *done
			<-goOn
			return false
		}})
		ended <- err
	}()
	commit = sync.OnceValue(func() error {
		close(goOn)
		return <-ended
	})
	select {
	case done = <-called:
		t.Cleanup(func() { _ = commit() })
		return done, commit, nil
	case err = <-ended:
		return done, func() error { return err }, err
	}
}

// waitsForGates says that a session waits for the lock of all gates.
const waitsForGates = `select exists (select from pg_locks l where l.relation = 'lapse.gate'::regclass and l.mode = 'ExclusiveLock' and not l.granted
	and l.database = (select oid from pg_database where datname = current_database()))`

// The race that a hold is made for: a batch began before the hold, has picked held rows, and is not over. The command that places
// the hold does not return before the batch is over; what it deleted is gone, and nothing held goes afterwards.
func TestPlacingAHoldWaitsForTheBatchThatDidNotSeeIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 0)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		w := open(t, db, "p")
		done, commit, err := w.openBatch(t, 10)
		if err != nil || done.Deleted != 10 {
			t.Fatalf("the batch that is held open: %+v, %v", done, err)
		}
		s := holdSession(t, db)
		placed := make(chan error, 1)
		go func() {
			_, err := holds.Place(t.Context(), s, holds.Order{Request: byWhere("public.sessions", "id <= 25"), Matter: "M-1", Reason: "a test"})
			placed <- err
		}()
		eventually(t, "the command waits for the gates", func() bool { return one[bool](t, db, waitsForGates) })
		// It is requested, published and enforced, and says nothing yet.
		if got := one[string](t, db, "select string_agg(state, ' ' order by id) from lapse.hold_state"); got != "requested" {
			t.Errorf("while the batch runs the hold is %s", got)
		}
		select {
		case err := <-placed:
			t.Fatalf("it returned while a batch that did not see the hold was open: %v", err)
		default:
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-placed; err != nil {
			t.Fatal(err)
		}
		seen := one[int](t, db, "select count(*) from sessions where id <= 25")
		if position := one[bool](t, db, `
			select s.position > (select r.position from lapse.hold_state r where r.state = 'requested') and s.position <= pg_current_wal_insert_lsn()
			  from lapse.hold_state s where s.state = 'effective'`); !position {
			t.Error("the position of effective is not after that of requested")
		}
		// The worker that still has the shard claims a hold version of before: it is told so, and nothing goes.
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateGate || grade(err, circumstances{limit: 10}) != Retry {
			t.Errorf("a batch with the former hold version: %v", err)
		}
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "p")
		if got := one[int](t, db, "select count(*) from sessions where id <= 25"); got != seen {
			t.Errorf("%d held rows are left, of %d when the hold was placed", got, seen)
		}
		if got := one[int](t, db, "select count(*) from sessions where id > 25"); got != 0 {
			t.Errorf("%d rows are left that are not held", got)
		}
		if claimed := one[bool](t, db, `
			select bool_and((b.hold_version = g.hold_version) = (b.started_at > (select max(changed_at) from lapse.hold_state)))
			  from lapse.batch b, lapse.gate g`); !claimed {
			t.Error("the batches do not claim the hold version under which they ran")
		}
	})
}

// A hold that was requested, and whose command was killed, is enforced. The next command that reads the holds waits for what is left.
func TestAHoldWhoseCommandWasKilledIsEnforcedAndTakenUpAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 0)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		w := open(t, db, "p")
		_, commit, err := w.openBatch(t, 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, kill := context.WithCancel(t.Context())
		s := holdSession(t, db)
		placed := make(chan error, 1)
		order := holds.Order{Request: byWhere("public.sessions", "id <= 25"), Matter: "M-1", Reason: "a test"}
		go func() {
			_, err := holds.Place(ctx, s, order)
			placed <- err
		}()
		eventually(t, "the command waits for the gates", func() bool { return one[bool](t, db, waitsForGates) })
		kill()
		var pending *holds.PendingError
		if err := <-placed; !errors.As(err, &pending) || pending.Hold != 1 {
			t.Fatalf("the command that was killed: %v", err)
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		left := ids(t, db, "sessions where id <= 25")
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "p")
		if got := ids(t, db, "sessions"); got != left {
			t.Errorf("rows %s are left, want those that were requested to be held: %s", got, left)
		}
		// The same command again finds its hold, and finishes it.
		if id := placeHold(t, holdSession(t, db), order.Request); id != 1 {
			t.Errorf("placed once more it is hold %d", id)
		}
		if got := one[string](t, db, "select string_agg(state, ' ' order by id) from lapse.hold_state"); got != "requested effective" {
			t.Errorf("afterwards the states are %s", got)
		}
	})
}

// Two commands at once, for the same and for different rows, end with one hold for each content.
func TestHoldsThatArePlacedAtOnceAreEachPlacedOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 9, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		requests := []string{"id = 1", "id = 2", "(id = 1)", "id = 2", "id=1", "id = 3"}
		placed := make(chan error, len(requests))
		for _, where := range requests {
			s := holdSession(t, db)
			go func() {
				_, err := holds.Place(t.Context(), s, holds.Order{Request: byWhere("public.sessions", where), Matter: "M-1", Reason: "a test"})
				placed <- err
			}()
		}
		for range requests {
			if err := <-placed; err != nil {
				t.Error(err)
			}
		}
		if got := one[string](t, db, "select count(*) || ' ' || count(distinct digest) from lapse.hold"); got != "3 3" {
			t.Errorf("holds and digests: %s, want 3 3", got)
		}
		if got := one[string](t, db, "select string_agg(n, ' ') from (select hold || ':' || string_agg(state, ',' order by id) as n from lapse.hold_state group by hold order by hold) s"); got !=
			"1:requested,effective 2:requested,effective 3:requested,effective" {
			t.Errorf("the states are %s", got)
		}
		once(t, newExecutor(t, db), "p")
		if got := ids(t, db, "sessions"); got != "1 2 3" {
			t.Errorf("rows %s stay", got)
		}
	})
}

// A release waits for no batch, and takes the keys away: a batch that knew the hold, and asks for them after that, is tried again.
func TestAHoldReleasedWhileABatchRunsStopsNoPolicy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		s := holdSession(t, db)
		id := placeHold(t, s, byKeys("public.sessions", "3"))
		w := open(t, db, "p")
		patient(t, w)
		w.a.Limits.Lock, w.a.Limits.Statement = time.Minute, time.Minute
		// The batch waits where it writes its record, after it found its rows.
		blocker := connectTo(t, db)
		for _, sql := range []string{"begin", "lock table lapse.batch in share mode"} {
			if _, err := blocker.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() {
			_, err := w.batch(t, 10)
			ended <- err
		}()
		eventually(t, "the batch waits", func() bool {
			return one[bool](t, db, "select exists (select from pg_locks l where l.relation = 'lapse.batch'::regclass and not l.granted)")
		})
		if err := holds.Release(t.Context(), s, id, 0, "it is over"); err != nil {
			t.Fatal(err)
		}
		if _, err := blocker.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; schemas.StateOf(err) != schemas.SQLStateGate || grade(err, circumstances{limit: 10, own: true}) != Retry {
			t.Errorf("the batch ended with %v, want %s, and another try", err, schemas.SQLStateGate)
		}
		if n := one[int](t, db, "select count(*) from sessions"); n != 10 {
			t.Errorf("%d of 10 rows are left by a batch that was refused", n)
		}
		w.Close()
		db.Exec(t, expireLeases)
		if did := only(t, once(t, newExecutor(t, db), "p")); did.Deleted != 10 || did.Outcome != Finished {
			t.Errorf("then: %+v, want all ten rows gone", did)
		}
	})
}

// Keys of a hold that is in force are not missing for a reason that passes.
func TestAPolicyStopsWhereTheKeysOfAHoldInForceAreGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	sessions(t, db, 10, 0)
	arm(t, db, policies(policy("p", "public.sessions")))
	placeHold(t, holdSession(t, db), byKeys("public.sessions", "3"))
	db.Exec(t, "delete from lapse.hold_key")
	if _, err := open(t, db, "p").batch(t, 10); schemas.StateOf(err) != schemas.SQLStateHold || grade(err, circumstances{limit: 10, own: true}) != StopPolicy {
		t.Errorf("got %v, want %s, and a stopped policy", err, schemas.SQLStateHold)
	}
}
