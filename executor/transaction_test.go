package executor

import (
	"errors"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// ever says that another batch follows.
func ever(*result) bool { return true }

// lies returns what the server shows of the session for batches: the state, and whether its transaction has an id.
func lies(t *testing.T, db *pgtest.DB, w *work) string {
	t.Helper()
	return one[string](t, db, "select state || case when backend_xid is null then '' else ', with an id' end from pg_stat_activity where pid = $1",
		int32(w.batches.PgConn().PID())) //nolint:gosec // a process id
}

func TestTheNextTransactionIsBegunWithTheCommitAndIsNotLeftOpen(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 100, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		batch := func(a *assignment, follows func(*result) bool) start {
			t.Helper()
			begun, done, err := w.deleteBatch(t.Context(), a, testKey, order{limit: 10, follows: follows})
			if err != nil || done.deleted != 10 {
				t.Fatalf("%+v, %v", done, err)
			}
			return begun
		}
		first := batch(w.a, ever)
		if w.ahead == nil || lies(t, db, w) != "idle in transaction, with an id" {
			t.Fatalf("behind a COMMIT that another batch follows the session is %s", lies(t, db, w))
		}
		next := w.ahead.begun
		if second := batch(w.a, ever); second != next || second.xid <= first.xid || !second.at.After(first.at) || second.insert <= first.insert {
			t.Errorf("it goes on with %+v, begun was %+v, behind %+v", second, next, first)
		}
		next = w.ahead.begun
		other := *w.a // of another shard, say
		if third := batch(&other, nil); third.xid == next.xid || w.ahead != nil || lies(t, db, w) != "idle" {
			t.Errorf("another assignment's batch goes on with what was begun for the former; afterwards the session is %s", lies(t, db, w))
		}
		batch(w.a, ever)
		if w.abandon(t.Context()); w.ahead != nil || lies(t, db, w) != "idle" {
			t.Errorf("what nobody wants lies there %s", lies(t, db, w))
		}
		if got := one[string](t, db, "select sum(deleted) || ' ' || count(*) || ' ' || count(distinct xid) from lapse.batch_result join lapse.batch using (batch)"); got != "40 4 4" {
			t.Errorf("rows, batches and transactions in the ledger: %s", got)
		}
	})
}

// What COMMIT says is the batch's fate, whatever was sent with it.
func TestACommitThatIsRefusedBeginsNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "create table public.once (id int, unique (id) deferrable initially deferred); grant insert on public.once to public")
		w := open(t, db, "p")
		for name, c := range map[string]struct {
			statements []string
			refused    func(error) bool
		}{
			"a deferred constraint": {[]string{"begin", "insert into public.once values (1), (1)"}, func(err error) bool {
				return schemas.StateOf(err) == "23505"
			}},
			"an aborted transaction": {[]string{"begin", "insert into public.once values (2)", "select 1/0"}, func(err error) bool {
				var counts *countsError // or 25P02, where the statement was not described before
				return errors.As(err, &counts) || schemas.StateOf(err) == "25P02"
			}},
		} {
			for n, statement := range c.statements {
				if _, err := w.batches.Exec(t.Context(), statement); err != nil && n < 2 {
					t.Fatal(err)
				}
			}
			err := w.commitAndBegin(t.Context(), w.a)
			var unknown *unknownCommit
			if !c.refused(err) || errors.As(err, &unknown) {
				t.Errorf("%s: %v", name, err)
			}
			if w.ahead != nil || w.committing.Load() || lies(t, db, w) != "idle" {
				t.Errorf("%s: ahead %v, committing %v, the session is %s", name, w.ahead, w.committing.Load(), lies(t, db, w))
			}
		}
		if n := one[int](t, db, "select count(*) from public.once"); n != 0 {
			t.Errorf("%d rows were committed", n)
		}
		if _, err := w.batch(t, 10); err != nil {
			t.Errorf("the next batch: %v", err)
		}
	})
}

// Where a policy's batches follow each other at once each costs two round trips; elsewhere COMMIT goes alone.
func TestOnlyBatchesThatFollowAtOnceAreBegunAhead(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		for pace, wanted := range map[string]bool{`"pace": "unlimited"`: true, `"pace": ""`: false, `"pace": "unlimited", "rate": 100000`: false} {
			db := pgtest.New(t, db.Major)
			sessions(t, db, 100, 5)
			arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
			setLimits(t, db, "{"+pace+"}")
			ahead := 0
			var w *worker
			e := newExecutor(t, db)
			w = e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
			if err := w.connect(t.Context(), notAtAll); err != nil {
				t.Fatal(err)
			}
			e.config.Progress = func(Progress) {
				if w.session.ahead != nil {
					ahead++
				}
			}
			run := open(t, db, "p")
			w.session.holder = run.session.holder
			turn := newTurn(run.policy, w.memory(run.policy))
			turn.opened(&run.run, 1000, w.now().Add(1e12))
			if end, err := w.shard(t.Context(), t.Context(), turn, run.a.lease); err != nil || end != turnShardOver {
				t.Fatal(end, err)
			}
			batches := int(turn.memory.run.now().batches)
			// Not all but the last: on a busy machine a guard may have to be asked in between.
			if wanted && (ahead <= batches/2 || ahead >= batches) || !wanted && ahead != 0 {
				t.Errorf("%s: of %d batches %d were begun ahead", pace, batches, ahead)
			}
			if w.session.ahead != nil {
				t.Errorf("%s: a transaction is left open", pace)
			}
			w.close()
		}
	})
}
