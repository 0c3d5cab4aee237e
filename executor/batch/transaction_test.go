package batch

import (
	"errors"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// ever says that another batch follows.
func ever(*Result) bool { return true }

// lies returns what the server shows of the session for batches: the state, and whether its transaction has an id.
func lies(t *testing.T, db *pgtest.DB, w *work) string {
	t.Helper()
	return one[string](t, db, "select state || case when backend_xid is null then '' else ', with an id' end from pg_stat_activity where pid = $1",
		int32(w.Batches.PgConn().PID())) //nolint:gosec // a process id
}

func TestTheNextTransactionIsBegunWithTheCommitAndIsNotLeftOpen(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := open(t, db, 100)
		batch := func(a *Assignment, follows func(*Result) bool) Start {
			t.Helper()
			begun, done, err := w.Delete(t.Context(), a, testKey, Order{Limit: 10, Follows: follows})
			if err != nil || done.Deleted != 10 {
				t.Fatalf("%+v, %v", done, err)
			}
			return begun
		}
		first := batch(w.a, ever)
		if w.Ahead == nil || lies(t, db, w) != "idle in transaction, with an id" {
			t.Fatalf("after a COMMIT that another batch follows the session is %s", lies(t, db, w))
		}
		next := w.Ahead.begun
		if second := batch(w.a, ever); second != next || second.xid <= first.xid || !second.At.After(first.At) || second.Insert <= first.Insert {
			t.Errorf("it goes on with %+v, begun was %+v, after %+v", second, next, first)
		}
		next = w.Ahead.begun
		other := *w.a // of another shard, say
		if third := batch(&other, nil); third.xid == next.xid || w.Ahead != nil || lies(t, db, w) != "idle" {
			t.Errorf("another assignment's batch goes on with what was begun for the former; afterwards the session is %s", lies(t, db, w))
		}
		batch(w.a, ever)
		if w.Abandon(t.Context()); w.Ahead != nil || lies(t, db, w) != "idle" {
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
		w := open(t, db, 20)
		db.Exec(t, "create table public.once (id int, unique (id) deferrable initially deferred); grant insert on public.once to public")
		for name, c := range map[string]struct {
			statements []string
			refused    func(error) bool
		}{
			"a deferred constraint": {[]string{"begin", "insert into public.once values (1), (1)"}, func(err error) bool {
				return schemas.StateOf(err) == "23505"
			}},
			"an aborted transaction": {[]string{"begin", "insert into public.once values (2)", "select 1/0"}, func(err error) bool {
				var counts *CountsError // or 25P02, where the statement was not described before
				return errors.As(err, &counts) || schemas.StateOf(err) == "25P02"
			}},
		} {
			for n, statement := range c.statements {
				if _, err := w.Batches.Exec(t.Context(), statement); err != nil && n < 2 {
					t.Fatal(err)
				}
			}
			err := w.commitAndBegin(t.Context(), w.a, Start{})
			var unknown *UnknownCommit
			if !c.refused(err) || errors.As(err, &unknown) {
				t.Errorf("%s: %v", name, err)
			}
			if w.Ahead != nil || w.committing.Load() || lies(t, db, w) != "idle" {
				t.Errorf("%s: ahead %v, committing %v, the session is %s", name, w.Ahead, w.committing.Load(), lies(t, db, w))
			}
		}
		if n := one[int](t, db, "select count(*) from public.once"); n != 0 {
			t.Errorf("%d rows were committed", n)
		}
		if _, _, err := w.Delete(t.Context(), w.a, testKey, Order{Limit: 10}); err != nil {
			t.Errorf("the next batch: %v", err)
		}
	})
}

// What was asked before the COMMIT of the batch before is asked again before this one's.
func TestAFunctionThatChangesAfterItWasAskedAboutRollsTheBatchBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"another text":         "alter function lapse.ways volatile",
		"another name":         "alter function lapse.ways rename to others",
		"a second of its name": "create function lapse.ways(int) returns int language sql as 'select 1'",
		"another schema":       "create schema other; alter function lapse.ways set schema other",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				w := open(t, db, 20)
				if _, _, err := w.Delete(t.Context(), w.a, testKey, Order{Limit: 10, Follows: ever}); err != nil || w.Ahead == nil {
					t.Fatalf("%v, begun ahead: %t", err, w.Ahead != nil)
				}
				db.Exec(t, change)
				if _, _, err := w.Delete(t.Context(), w.a, testKey, Order{Limit: 10}); !errors.Is(err, ErrFunctionsChanged) {
					t.Errorf("got %v, want that a function was changed", err)
				}
				var tampered *TamperedError
				if _, _, err := w.Delete(t.Context(), w.a, testKey, Order{Limit: 10}); !errors.As(err, &tampered) {
					t.Errorf("got %v, want which function it is", err)
				}
				if left := one[int](t, db, "select count(*) from sessions"); left != 10 {
					t.Errorf("%d rows are left, want ten", left)
				}
			})
		})
	}
}
