package executor

import (
	"errors"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/hold"
	"lapse/schemas"
)

// refusedMove is what a move that must be refused is refused with.
func refusedMove(t testing.TB, s *site.Session, id schemas.HoldID, to string) string {
	t.Helper()
	err := holds.Move(t.Context(), s, id, to, "a test")
	var mistaken *holds.Error
	if !errors.As(err, &mistaken) {
		t.Errorf("hold %d to %s: %v, want a refusal", id, to, err)
		return ""
	}
	return mistaken.Problem
}

// wantFaults compares what `lapse hold list` finds wrong.
func wantFaults(t testing.TB, s *site.Session, want ...string) {
	t.Helper()
	faults, err := holds.Faults(t.Context(), s)
	if err != nil || len(faults) != len(want) {
		t.Fatalf("the faults are %q, want %q: %v", faults, want, err)
	}
	for i, text := range want {
		if !strings.Contains(faults[i], text) {
			t.Errorf("fault %d is %q, want %q", i, faults[i], text)
		}
	}
}

// A hold whose table is gone would match nothing: what took the table's place may be anywhere. Every policy stops, and the message says
// what to do. Moved, the hold is on the same keys there.
func TestAHoldWhoseTableIsGoneStopsEveryPolicyUntilItIsMoved(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		entries := []string{onHold(t, db, "elsewhere"), onHold(t, db, "was")}
		arm(t, db, policies(entries...))
		s := holdSession(t, db)
		placeHold(t, s, byKeys("public.was", "3", "7"))
		wantFaults(t, s)
		owned(t, db, "create table tb_orders (like was including all)", "insert into tb_orders select * from was", "drop table was cascade",
			"create table other (id bigint, id2 int, at timestamptz)", "create table narrow (id int, at timestamptz)")
		arm(t, db, policies(entries[0], policy("was", "public.tb_orders")))
		for _, name := range []schemas.PolicyName{"elsewhere", "was"} {
			_, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{name})
			if err == nil || !strings.Contains(err.Error(), "LP024, hold 1 is on public.was, which is gone") || !strings.Contains(err.Error(), "lapse hold move 1 --to") {
				t.Errorf("policy %s: %v", name, err)
			}
		}
		const gone = "hold 1 is on public.was, which is gone"
		wantFaults(t, s, gone, "policy elsewhere deletes nothing", "policy was deletes nothing")
		if text := refusedMove(t, s, 1, "public.narrow"); !strings.Contains(text, "column \"id\" of type bigint, which public.narrow has as integer") {
			t.Errorf("to other key columns: %s", text)
		}
		owned(t, db, "alter table other rename column id to nothing")
		if text := refusedMove(t, s, 1, "public.other"); !strings.Contains(text, "column \"id\", which public.other does not have") {
			t.Errorf("to no key column: %s", text)
		}
		refusedMove(t, s, 2, "public.tb_orders")
		refusedMove(t, s, 1, "public.nowhere")
		refusedMove(t, s, 1, "pg_catalog.pg_class")
		wantFaults(t, s, gone, "policy elsewhere", "policy was")
		if err := holds.Move(t.Context(), s, 1, "public.tb_orders", "made again"); err != nil {
			t.Fatal(err)
		}
		refusedMove(t, s, 1, "public.tb_orders") // it is there
		wantFaults(t, s)
		if got := one[string](t, db, "select string_agg(concat_ws(' ', state, table_name, nullif(reason, '')), ', ' order by id) from lapse.hold_state"); got !=
			"requested a test, effective, requested public.tb_orders made again, effective" {
			t.Errorf("the record says %s", got)
		}
		once(t, newExecutor(t, db), "elsewhere", "was")
		if got := ids(t, db, "tb_orders") + ", " + ids(t, db, "elsewhere"); got != "3 7, -" {
			t.Errorf("rows %s stay, want 3 7, and none elsewhere", got)
		}
		// The same hold once more is the one that moved.
		if id := placeHold(t, s, byKeys("public.tb_orders", "3", "7")); id != 1 {
			t.Errorf("placed once more it is hold %d", id)
		}
	})
}

// A held partition is split; a member is dropped, as each night; a table is dropped for good, and its hold is released.
func TestAHeldPartitionThatIsSplitStopsAndAMemberThatIsDroppedDoesNot(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, `create table p (id bigint, at timestamptz, r int, primary key (id, r)) partition by list (r);
			create index on p (at, id, r);
			create table p_12 partition of p for values in (1, 2);
			create table p_3 partition of p for values in (3);
			insert into p select n, now() - interval '1 year', n % 3 + 1 from generate_series(1, 12) n`)
		arm(t, db, policies(policy("p", "public.p"), onHold(t, db, "x"), onHold(t, db, "lone")))
		s := holdSession(t, db)
		placeHold(t, s, byWhere("public.p", "id = 5")) // in p_3
		placeHold(t, s, byKeys("public.p_12", "4,2", "6,1"))
		placeHold(t, s, byWhere("public.lone", "true"))
		owned(t, db, "create table p_4 partition of p for values in (4)")
		wantFaults(t, s)
		owned(t, db, "drop table p_4")
		wantFaults(t, s)
		if got := one[string](t, db, "select string_agg(hold || ' ' || name || ' ' || ended, ', ' order by id) from lapse.hold_relation where name = 'public.p_4'"); got !=
			"1 public.p_4 false, 1 public.p_4 true" {
			t.Errorf("of a partition that was made and dropped the record says %s", got)
		}
		owned(t, db, "alter table p detach partition p_12", "create table p_1 partition of p for values in (1)", "create table p_2 partition of p for values in (2)",
			"insert into p select * from p_12", "drop table p_12")
		const gone = "hold 2 is on public.p_12, which is gone"
		wantFaults(t, s, gone, "policy lone", "policy p ", "policy x")
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"}); err == nil || !strings.Contains(err.Error(), gone) {
			t.Errorf("after the split: %v", err)
		}
		if err := holds.Move(t.Context(), s, 2, "public.p", "split"); err != nil {
			t.Fatal(err)
		}
		once(t, newExecutor(t, db), "p", "x")
		if got := ids(t, db, "p") + ", " + ids(t, db, "x"); got != "4 5 6, -" {
			t.Errorf("rows %s stay, want 4 5 6, and none of x", got)
		}
		// Releasing a hold whose table is gone says that nothing took its place: policies go on, and its content is kept as long as ever.
		owned(t, db, "drop table lone cascade")
		arm(t, db, policies(policy("p", "public.p"), policy("x", "public.x")))
		wantFaults(t, s, "hold 3 is on public.lone, which is gone", "policy p ", "policy x")
		if err := holds.Release(t.Context(), s, 3, holds.CoolingOff, "dropped for good"); err != nil {
			t.Fatal(err)
		}
		wantFaults(t, s)
		refusedMove(t, s, 3, "public.x")
		once(t, newExecutor(t, db), "p", "x")
		// One that is released first, and loses its table then, stops: nobody has spoken of that.
		if err := holds.Release(t.Context(), s, 2, holds.CoolingOff, "over"); err != nil {
			t.Fatal(err)
		}
		wantFaults(t, s)
		owned(t, db, "alter table p rename to p_old", "create table q (like p_old including all)", "insert into q select * from p_old", "drop table p_old")
		wantFaults(t, s, "hold 1 is on public.p, which is gone", "hold 2 is on public.p, which is gone", "policy p ", "policy x")
	})
}

// While a hold moves, nothing of it goes: a batch that began before is waited for, and those that begin meanwhile obey it on both tables.
func TestMovingAHoldWaitsForTheBatchThatDidNotSeeIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		arm(t, db, policies(onHold(t, db, "a"), onHold(t, db, "b")))
		s := holdSession(t, db)
		placeHold(t, s, byWhere("public.a", "id <= 5"))
		w := open(t, db, "b")
		done, commit, err := w.openBatch(t, 2)
		if err != nil || done.Deleted != 2 {
			t.Fatalf("the batch that is held open: %+v, %v", done, err)
		}
		moved := make(chan error, 1)
		go func() { moved <- holds.Move(t.Context(), s, 1, "public.b", "a test") }()
		eventually(t, "the command waits for the gates", func() bool { return one[bool](t, db, waitsForGates) })
		select {
		case err := <-moved:
			t.Fatalf("it returned while a batch that did not see it was open: %v", err)
		default:
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateGate {
			t.Errorf("a batch that claims the hold version of before: %v", err)
		}
		seen := ids(t, db, "b where id <= 5")
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "a", "b")
		if got := ids(t, db, "b") + ", " + ids(t, db, "a"); got != seen+", 1 2 3 4 5" {
			t.Errorf("rows %s stay, want %s, and the former table's 1 to 5", got, seen)
		}
	})
}

// A partition that a hold names is not dropped whole, though none of its rows is held: with it the hold's table would be gone.
func TestAPartitionThatAHoldNamesIsNotDropped(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, `create table p (id bigint, at timestamptz, primary key (id, at)) partition by range (at);
			create table p_a partition of p for values from ('2020-01-01') to ('2021-01-01');
			create table p_b partition of p for values from ('2021-01-01') to ('2022-01-01');
			create table p_c partition of p for values from ('2022-01-01') to (maxvalue);
			insert into p select n, '2020-05-05'::timestamptz + n * interval '1 day' from generate_series(1, 5) n;
			insert into p select n, '2021-05-05'::timestamptz + n * interval '1 day' from generate_series(6, 9) n; create index on p (at, id)`)
		arm(t, db, policies(policy("p", "public.p", "action: drop_partition")))
		s := holdSession(t, db)
		placeHold(t, s, byWhere("public.p_a", "id = 99"))
		placeHold(t, s, byWhere("public.p", "id = 99"))
		once(t, newExecutor(t, db), "p")
		if got := one[string](t, db, "select string_agg(relname, ' ' order by relname) from pg_class where relname ~ '^p_.$'"); got != "p_a p_c" {
			t.Errorf("partitions %s are left, want that which is held by name and the last", got)
		}
		if got := ids(t, db, "p"); got != "-" {
			t.Errorf("rows %s stay, want none", got)
		}
		wantFaults(t, s)
	})
}

// What a look, a run, a beat and apply find below a held table is on record.
func TestEachLookRunAndApplyRecordsWhatIsBelowAHeldTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table p (id bigint primary key, c int) partition by range (id)", "create table q (id bigint primary key, at timestamptz)", "create index on q (at, id)")
		arm(t, db, policies(policy("q", "public.q")))
		placeHold(t, holdSession(t, db), hold.Request{Table: "public.p", Where: "c = 1"})
		known := func(n string) bool {
			return one[bool](t, db, "select exists (select from lapse.hold_relation where name = $1)", "public.p_"+n)
		}
		for n, record := range map[string]func(){
			"1": func() { once(t, newExecutor(t, db), "q") }, // finds nothing
			"2": func() {
				owned(t, db, "insert into q values (1, now() - interval '1 year')")
				once(t, newExecutor(t, db), "q")
			},
			"3": func() {
				db.Exec(t, "set session authorization lapse_auditor; select lapse.beat(gen_random_uuid(), 1, lapse.timeline(), pg_postmaster_start_time(), null)")
			},
			"4": func() { arm(t, db, policies(policy("q", "public.q", "batch: 7"))) },
		} {
			owned(t, db, "create table p_"+n+" partition of p for values from ("+n+") to ("+n+"+1)")
			if record(); !known(n) {
				t.Errorf("%s: the partition is not on record", n)
			}
		}
		holdSession(t, db)
		owned(t, db, "create table p_5 partition of p for values from (5) to (6)")
		wantFaults(t, holdSession(t, db))
		if !known("5") {
			t.Error("lapse hold list does not record")
		}
	})
}
