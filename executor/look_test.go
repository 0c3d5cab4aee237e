package executor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// A look that finds nothing writes nothing, but once a minute that it was.
func TestWhereNothingIsDueNoRunIsOpened(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table events (id bigint, at timestamptz, primary key (id, at)) partition by list (id)",
			"create table events_1 partition of events for values in (1)", "create table events_2 partition of events for values in (2)", "create table events_3 partition of events for values in (3)")
		arm(t, db, policies(policy("p", "public.events")))
		const standing = "select concat((select count(*) from lapse.run), ' runs, ', (select count(*) from lapse.shard), ' shards, looked ', (select xmin || ' ' || ctid from lapse.looked))"
		e := newExecutor(t, db)
		if s := only(t, once(t, e)); s.Outcome != Finished || s.Deleted != 0 || s.Run != uuid.Nil {
			t.Errorf("with nothing due: %+v", s)
		}
		before := one[string](t, db, standing)
		if !strings.HasPrefix(before, "0 runs, 0 shards, looked ") || strings.HasSuffix(before, "looked ") {
			t.Errorf("a look left %s", before)
		}
		for range 3 {
			once(t, e, "p")
			once(t, newExecutor(t, db), "p")
		}
		if after := one[string](t, db, standing); after != before {
			t.Errorf("looks left %s, and before %s", after, before)
		}
		// It counts as the policy's run.
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 0 {
			t.Errorf("right after a look the policy is due again: %+v", s)
		}
		db.Exec(t, "update lapse.looked set at = at - interval '2 hours'")
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 1 {
			t.Errorf("two hours after a look the policy is not due: %+v", s)
		}
		if after := one[string](t, db, standing); after == before {
			t.Error("after an hour it was not written down that nothing was due")
		}
		owned(t, db, "insert into events values (2, now() - interval '40 days'), (3, now())")
		if s := only(t, once(t, e, "p")); s.Deleted != 1 || s.Run == uuid.Nil {
			t.Errorf("with a due row: %+v", s)
		}
		if got := one[string](t, db, "select string_agg(leaf::regclass::text, ' ') from lapse.shard"); got != "events_2" {
			t.Errorf("the run has shards of %s", got)
		}
	})
}

// What a look runs is held against what it must be before it runs.
func TestALookByAFunctionThatIsNotOursStopsThePolicy(t *testing.T) {
	t.Parallel()
	const signature = "lapse.due_1_1(timestamptz, bigint[])"
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 0, 5)
		db.Exec(t, "create table public.seen (what text)", "grant all on public.seen to public")
		arm(t, db, policies(policy("p", "public.sessions")))
		e := newExecutor(t, db)
		once(t, e, "p")
		for what, change := range map[string][2]string{
			"the caller's rights":  {"alter function " + signature + " security invoker", "alter function " + signature + " security definer"},
			"for everybody":        {"grant execute on function " + signature + " to public", "revoke execute on function " + signature + " from public"},
			"a setting":            {"alter function " + signature + " set row_security = on", "alter function " + signature + " set row_security = off"},
			"checks that see less": {rewrite("lapse.familiar", "if e.signature = ", "if true or e.signature = "), rewrite("lapse.familiar", "if true or e.signature = ", "if e.signature = ")},
		} {
			db.Exec(t, change[0])
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			if err == nil || !strings.Contains(err.Error(), "somebody changed it") || only(t, s).Outcome != Stopped {
				t.Errorf("%s: %+v, %v", what, s, err)
			}
			db.Exec(t, change[1])
			if s, err := e.Once(t.Context(), []schemas.PolicyName{"p"}); err != nil || only(t, s).Outcome != Finished {
				t.Errorf("without %s: %+v, %v", what, s, err)
			}
		}
		db.Exec(t, "drop function "+signature)
		if s, err := e.Once(t.Context(), []schemas.PolicyName{"p"}); err == nil || !strings.Contains(err.Error(), "lapse.due_1_1 is not there") {
			t.Errorf("without its function: %+v, %v", s, err)
		}
	})
}

// cpuOf is the processor time of a process, of the server's too: it runs on this machine.
func cpuOf(t testing.TB, pid uint32) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkTwoHundredPoliciesWithNothingDue checks each of them once: what a second costs where each is checked every second. It
// reports processor time of this process and of the server's.
func BenchmarkTwoHundredPoliciesWithNothingDue(b *testing.B) {
	db := pgtest.New(b, pgtest.Newest(b))
	const n = 200
	var file []string
	for i := range n {
		owned(b, db, fmt.Sprintf("create table t%d (id bigint primary key, at timestamptz)", i), fmt.Sprintf("create index on t%d (at, id)", i),
			fmt.Sprintf("insert into t%d select g, now() from generate_series(1, 1000) g", i))
		file = append(file, policy(fmt.Sprintf("p%03d", i), fmt.Sprintf("public.t%d", i)))
	}
	arm(b, db, policies(file...))
	w := newTestWorker(b, db)
	if err := w.connect(b.Context(), forever); err != nil {
		b.Fatal(err)
	}
	defer w.close()
	list, err := record.LoadInForce(b.Context(), w.session.Control)
	if err != nil {
		b.Fatal(err)
	}
	look := func() {
		for i := range list {
			if _, end, err := w.look(b.Context(), newTurn(&list[i], w.memory(&list[i]))); err != nil || end != turnFinished {
				b.Fatal(end, err)
			}
		}
	}
	look()
	var before, after syscall.Rusage
	server := cpuOf(b, w.session.Batches.PgConn().PID())
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ResetTimer()
	for range b.N {
		look()
	}
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	own := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(own.Seconds()*1000/float64(b.N), "own-cpu-ms/op")
	b.ReportMetric((cpuOf(b, w.session.Batches.PgConn().PID())-server).Seconds()*1000/float64(b.N), "server-cpu-ms/op")
}
