package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// months makes a table of ranges of its due column: so many that are over and due, one that is half due, and a default one.
func months(t testing.TB, db *pgtest.DB, over, rows int) {
	t.Helper()
	statements := []string{"create table parts (id bigint, at timestamptz, primary key (id, at)) partition by range (at)"}
	const makePart = `do $$ begin execute format('create table parts_%[1]s partition of parts for values from (%%L) to (%%L)', now() - interval '%[2]d days', now() - interval '%[3]d days'); end $$`
	for i := range over {
		statements = append(statements, fmt.Sprintf(makePart, fmt.Sprint(i+1), 100+10*i+10, 100+10*i))
	}
	statements = append(statements, fmt.Sprintf(makePart, "half", 100, -10), "create table parts_rest partition of parts default",
		fmt.Sprintf("insert into parts select n, now() - interval '101 days' - n %% %d * interval '10 days' from generate_series(1, %d) n", over, over*rows),
		fmt.Sprintf("insert into parts select n, now() - case when n %% 2 = 0 then interval '50 days' else interval '10 days' end from generate_series(1, %d) n", rows),
		fmt.Sprintf("insert into parts select n, now() - interval '900 days' from generate_series(1, %d) n", rows), "analyze parts")
	owned(t, db, statements...)
}

func TestAPartitionIsDroppedWholeAndTheOthersLoseTheirDueRows(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 3, 40)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		e := newExecutor(t, db)
		did := only(t, once(t, e))
		if did.Outcome != Finished || did.Deleted != 3*40+20+40 {
			t.Errorf("got %+v, want the 120 rows of three partitions, 20 and 40", did)
		}
		if left := leavesOf(t, db); left != "parts_half parts_rest" {
			t.Errorf("left are %s", left)
		}
		if n := one[int](t, db, `select count(*) from parts`); n != 20 {
			t.Errorf("%d rows are left, want the 20 that are not due", n)
		}
		if ledger := one[string](t, db, `select string_agg(relation || ' ' || rows, ', ' order by relation) from lapse.dropped`); ledger != "public.parts_1 40, public.parts_2 40, public.parts_3 40" {
			t.Errorf("the ledger of drops has %s", ledger)
		}
		if n := one[int](t, db, `select sum(deleted) from lapse.batch_result`); n != 60 {
			t.Errorf("the ledger of batches has %d rows, want 60", n)
		}
		if fault := one[*string](t, db, `select lapse.publications_fault()`); fault != nil {
			t.Errorf("the publications are faulty: %s", *fault)
		}
		if did := only(t, once(t, e, "p")); did.Deleted != 0 || did.Outcome != Finished {
			t.Errorf("the next run: %+v", did)
		}
	})
}

// leavesOf are the leaves that are left.
func leavesOf(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return one[string](t, db, `select string_agg(c.relname, ' ' order by c.relname) from pg_class c join pg_inherits i on i.inhrelid = c.oid where i.inhparent = 'parts'::regclass`)
}

// A lock that somebody holds costs a partition no more than time. Where it is held in every run, the rows are deleted.
func TestAPartitionThatSomebodyReadsIsDroppedWholeLater(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 2, 10)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		e := newExecutor(t, db)
		read := func(part string) *pgx.Conn {
			reader := db.Connect(t)
			if _, err := reader.Exec(t.Context(), "begin; select from "+part); err != nil {
				t.Fatal(err)
			}
			return reader
		}
		reader := read("parts_1")
		if did := only(t, once(t, e)); !did.LeftBehind || did.Deleted != 10+5+10 {
			t.Errorf("while it is read: %+v", did)
		}
		if left := leavesOf(t, db); left != "parts_1 parts_half parts_rest" {
			t.Errorf("left are %s", left)
		}
		_ = reader.Close(context.WithoutCancel(t.Context()))
		db.Exec(t, `update lapse.shard set retry_at = clock_timestamp() where aside`)
		if did := only(t, once(t, e, "p")); did.LeftBehind || did.Deleted != 10 {
			t.Errorf("later: %+v", did)
		}
		if left := leavesOf(t, db); left != "parts_half parts_rest" {
			t.Errorf("left are %s", left)
		}
	})
}

func TestAPartitionThatIsReadInEveryRunLosesItsRows(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	months(t, db, 1, 10)
	arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
	w := open(t, db, "p")
	db.Exec(t, `update lapse.shard set tries = 5, holder = null, lease_until = null where not aside`)
	reader := db.Connect(t)
	if _, err := reader.Exec(t.Context(), "begin; select from parts"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if did := only(t, once(t, newExecutor(t, db), "p")); did.LeftBehind || did.Deleted != 10+5+10 {
		t.Errorf("got %+v", did)
	}
	if left := leavesOf(t, db); left != "parts_1 parts_half parts_rest" {
		t.Errorf("left are %s", left)
	}
}

// openDrop claims the leaf parts_1, for its drop.
func openDrop(t testing.TB, db *pgtest.DB) (*work, *batch.Program) {
	t.Helper()
	w := open(t, db, "p")
	f, err := batch.FunctionsToDrop(w.policy, batch.NewCatalog(schemas.RolesFor(schemas.DefaultRolePrefix)))
	if err != nil {
		t.Fatal(err)
	}
	for w.a.Leaf != one[uint32](t, db, `select 'parts_1'::regclass::oid`) {
		w.acquire(t)
	}
	return w, f
}

// A drop may take longer than a batch. From 17 on a session's transaction_timeout ends it, with the session: it was tried again, for ever.
func TestADropMayTakeLongerThanABatchsTransaction(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{17, 18}, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 1, 10)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		w, f := openDrop(t, db)
		config := w.Batches.Config()
		config.RuntimeParams["transaction_timeout"] = "200ms"
		hasty, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Batches.Close(t.Context())
		w.Batches = hasty
		reader := connectTo(t, db)
		if _, err := reader.Exec(t.Context(), "begin; select from parts_1"); err != nil {
			t.Fatal(err)
		}
		// It asks for the lock three times, for 100 ms each.
		if _, _, _, err = w.Drop(t.Context(), w.a, f, testKey); schemas.StateOf(err) != schemas.SQLStateLockNotAvailable || w.Lost() {
			t.Fatalf("while the partition is read: %v, want that it is locked", err)
		}
		if _, err := reader.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		if _, done, why, err := w.Drop(t.Context(), w.a, f, testKey); err != nil || why != "" || done.Deleted != 10 {
			t.Errorf("later: %+v, %q, %v", done, why, err)
		}
		if got := fixture.One[string](t, hasty, "show transaction_timeout"); got != "200ms" {
			t.Errorf("afterwards transaction_timeout is %s", got)
		}
	})
}

// From a drop to its COMMIT nobody can read the table. An executor that is stopped or cut off between the two is not waited for long.
func TestADropThatIsNotCommittedGivesTheTableBackSoon(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 1, 10)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		w, f := openDrop(t, db)
		p, url := startProxy(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
		s, err := batch.Connect(t.Context(), executorAt(t, url).config.Database, w.holder+"/0", time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		p.next <- holding
		_, _, _, err = s.Drop(t.Context(), w.a, f, testKey)
		var unknown *batch.UnknownCommit
		if !errors.As(err, &unknown) {
			t.Fatalf("a drop without an answer to its COMMIT: %v", err)
		}
		reader := connectTo(t, db)
		if _, err := reader.Exec(t.Context(), "set lock_timeout = '4s'; select from parts_1"); err != nil {
			t.Errorf("four seconds later: %v, want that the partition can be read", err)
		}
	})
}

// What became of a COMMIT that was not answered is in the ledger of drops too.
func TestAPartitionThatWasDroppedWholeIsInTheLedger(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		months(t, db, 1, 10)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		w, f := openDrop(t, db)
		_, done, why, err := w.Drop(t.Context(), w.a, f, testKey)
		if err != nil || why != "" || done.Deleted != 10 || !done.Finished {
			t.Fatalf("%+v, %q, %v", done, why, err)
		}
		there, err := w.InLedger(t.Context(), &done)
		if err != nil || !there {
			t.Errorf("in the ledger: %t, %v", there, err)
		}
		// The function's text is held to what this program makes of it.
		db.Exec(t, `alter function lapse.drop_1_1 reset lock_timeout`)
		w.acquire(t)
		_, _, _, err = w.Drop(t.Context(), w.a, f, testKey)
		var tampered *batch.TamperedError
		if !errors.As(err, &tampered) {
			t.Errorf("of a function that was changed: %v", err)
		}
	})
}
