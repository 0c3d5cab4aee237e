package executor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
)

// runsSay is what the catalog says of each run, the first first.
func runsSay(t testing.TB, db *pgtest.DB) []string {
	t.Helper()
	return one[[]string](t, db, `
		select array_agg(concat_ws(' ', coalesce(r.outcome, 'goes on'), 'deleted', s.deleted, 'cascaded', s.cascaded, 'refreshed', s.refreshed,
		                           'left', coalesce(r.left_due::text, '?'), case when s.batches > 0 then 'in batches' end,
		                           case when r.rests_because is not null then 'rests: ' || r.rests_because end) order by r.number)
		  from lapse.run r, lapse.statistics(r.run) s`)
}

func lastRunSays(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	all := runsSay(t, db)
	return all[len(all)-1]
}

func TestARunSaysWhatItDidAndUpToWhereNothingIsLeft(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		spread(t, db, 200, 10)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))

		// One row is locked to the end.
		locker, err := db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Exec(t.Context(), "select from sessions where id = 7 for update"); err != nil {
			t.Fatal(err)
		}
		s := only(t, once(t, newExecutor(t, db), "p"))
		if got := lastRunSays(t, db); got != "done deleted 199 cascaded 20 refreshed 0 left 1 in batches" {
			t.Errorf("the run says: %s", got)
		}
		if !one[bool](t, db, "select r.watermark = s.at + interval '30 days' and r.ended_at >= r.started_at from lapse.run r, sessions s where s.id = 7") {
			t.Error("the watermark is not when the row that is left fell due")
		}
		if w := s.Whole; w.Deleted != 199 || w.Cascaded != 20 || w.Batches < 10 || w.LeftDue == nil || *w.LeftDue != 1 || w.Watermark == nil {
			t.Errorf("Once says %+v", w)
		}
		if err := locker.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}

		s = only(t, once(t, newExecutor(t, db), "p"))
		if got := lastRunSays(t, db); got != "done deleted 1 cascaded 0 refreshed 0 left 0 in batches" {
			t.Errorf("the next run says: %s", got)
		}
		if !one[bool](t, db, "select watermark = cutoff from lapse.run order by number desc limit 1") || s.Whole.Watermark == nil {
			t.Error("with nothing left the watermark is not the cutoff")
		}
	})
}

// Whatever the reason is for which a row stays: a trigger that keeps it raises nothing, and a hold is no row left.
func TestARunCountsTheRowsThatATriggerKeepsAndThoseThatAreHeld(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 200, 10)
		owned(t, db, "create function keep() returns trigger language plpgsql as $$ begin return case when old.id % 50 > 0 then old end; end $$",
			"create trigger keep before delete on sessions for each row execute function keep()")
		arm(t, db, policies(policy("p", "public.sessions", "triggers: trusted")))
		placeHold(t, holdSession(t, db), byKeys("public.sessions", "3", "200"))
		once(t, newExecutor(t, db), "p")
		if got := ids(t, db, "sessions where id <= 200"); got != "3 50 100 150 200" {
			t.Errorf("rows %s are left", got)
		}
		got := one[string](t, db, `select concat_ws(' ', r.left_due, r.left_held, r.due, r.watermark = s.at + interval '30 days') from lapse.run r, sessions s where s.id = 150`)
		if got != "3 2 198 t" {
			t.Errorf("the run says: %s", got)
		}
	})
}

// When the oldest of what is left fell due is not known of every kind, and how much is left is not always counted.
func TestAWatermarkThatIsNotKnownIsNotSaid(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		db.Exec(t, "update lapse.shard set done = true")
		for values, want := range map[string]string{
			"0, 0, 0, null": "cutoff", "0, 3, 0, null": "cutoff", "2, 0, 0, null": "unknown", "null, null, 1, null": "unknown",
			"2, 0, 0, now() - interval '1 day'": "earlier", "2, 0, 0, 'infinity'": "cutoff",
		} {
			db.Exec(t, "update lapse.run set outcome = null, due = null, watermark = null", fmt.Sprintf("select lapse.close_run('%s', %s)", w.run.ID, values))
			got := one[string](t, db, "select case when watermark = cutoff then 'cutoff' when watermark < cutoff then 'earlier' else 'unknown' end from lapse.run")
			if got != want {
				t.Errorf("what is left being (%s) the watermark is %s, want %s", values, got, want)
			}
		}
	})
}

// A pass goes on in another run where somebody else has ended the one that it began.
func TestAPassCountsWhatItDidInEachOfItsRuns(t *testing.T) {
	t.Parallel()
	var s target
	first, second := uuid.New(), uuid.New()
	for _, did := range []runCounts{{run: first, deleted: 3, batches: 1}, {run: first, deleted: 5, batches: 2}, {run: second, deleted: 2, batches: 1}, {run: second, deleted: 4, batches: 3}} {
		s.take(did)
	}
	if s.Deleted != 9 || s.Batches != 5 || s.Run != second {
		t.Errorf("it says %+v", s.PolicySummary)
	}
}

// Held rows are no backlog: they are counted by themselves, also where nothing else is left, and the watermark passes them.
func TestARunSaysHowManyRowsAreHeld(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		placeHold(t, holdSession(t, db), byKeys("public.sessions", "7", "8"))
		e := newExecutor(t, db)
		w := only(t, once(t, e, "p")).Whole
		if w.Due == nil || *w.Due != 48 || w.Deleted != 48 || w.LeftHeld == nil || *w.LeftHeld != 2 || w.LeftDue == nil || *w.LeftDue != 0 || w.Watermark == nil {
			t.Errorf("Once says %+v, want 2 rows held and none left", w)
		}
		if !one[bool](t, db, "select watermark = cutoff and due = 48 from lapse.run") || counted(t, e, "lapse_rows_held") != 2 || counted(t, e, "lapse_expired_backlog_rows") != 0 {
			t.Errorf("watermark, due rows or metrics say otherwise: %v held, %v left", counted(t, e, "lapse_rows_held"), counted(t, e, "lapse_expired_backlog_rows"))
		}
	})
}

func TestSeveralExecutorsSayTheSameOfOneRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		spread(t, db, 1000, 10)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		executors := make([]*Executor, 3)
		for i := range executors {
			executors[i] = newExecutor(t, db, func(c *Config) { c.Limits.TurnRows = 100 })
		}
		summaries := make(chan Summary, len(executors))
		for _, e := range executors {
			go func() {
				s, err := e.Once(t.Context(), nil)
				if err != nil {
					t.Error(err)
				}
				summaries <- s
			}()
		}
		var deleted int64
		for range executors {
			for _, p := range (<-summaries).Policies {
				deleted += p.Deleted
				// Who did not end the run, nor was there at its end, does not say what all did.
				whole := one[int64](t, db, "select coalesce(sum(deleted), 0)::int8 from lapse.statistics($1)", p.Run)
				if p.Whole.Deleted > whole || p.Outcome == Finished && p.Whole.Deleted > 0 && p.Whole.Deleted != whole {
					t.Errorf("an executor says that its run deleted %d rows, and the catalog %d", p.Whole.Deleted, whole)
				}
			}
		}
		if deleted != 1000 {
			t.Errorf("the executors say that they deleted %d of 1000 rows", deleted)
		}
		// Who finds due rows a moment before the run is over opens another, in which nothing is left to do, and says so of that one.
		conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
		list, err := record.LoadInForce(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		second, err := run.Open(t.Context(), conn, find(list, "p"), time.Now, run.Options{})
		if err != nil {
			t.Fatal(err)
		}
		late := only(t, once(t, newExecutor(t, db), "p"))
		if w := late.Whole; late.Run != second.ID || late.Deleted != 0 || w.Deleted != 0 || w.LeftDue == nil || *w.LeftDue != 0 {
			t.Errorf("the late one says %+v of run %v", late, second.ID)
		}
		all := runsSay(t, db)
		// Who ends it while others have rows locked counts what is left, which a loaded machine has no time for.
		if left := strings.Replace(all[0], "left ?", "left 0", 1); left != "done deleted 1000 cascaded 100 refreshed 0 left 0 in batches" {
			t.Errorf("the run says: %s", all[0])
		}
		for _, later := range all[1:] {
			if later != "done deleted 0 cascaded 0 refreshed 0 left 0" {
				t.Errorf("a later run says: %s", later)
			}
		}
	})
}

// What stops it is said, and what it did until then.
func TestARunThatIsLeftHalfWaySaysWhyAndWhatItDid(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 500, 10)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50")))
		ctx, stop := context.WithCancel(t.Context())
		e := newExecutor(t, db, func(c *Config) {
			c.Limits.Workers = 1
			c.Progress = func(p Progress) {
				if p.Deleted >= 100 {
					stop()
				}
			}
		})
		s, err := e.Once(ctx, nil)
		if err == nil || only(t, s).Outcome != Interrupted || only(t, s).Whole.Deleted < 100 {
			t.Fatalf("Once did %+v, %v", s, err)
		}
		if got := lastRunSays(t, db); !strings.HasPrefix(got, "goes on deleted 1") || !strings.HasSuffix(got, "left ? in batches rests: stop request") {
			t.Errorf("the run says: %s", got)
		}
		deleted := one[int](t, db, "select 500 - count(*) from sessions where id <= 500")

		setLimits(t, db, hoursFrom(6, 12))
		if _, err := newExecutor(t, db).Once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := lastRunSays(t, db); !strings.Contains(got, "rests: ") {
			t.Errorf("the run says: %s", got)
		}

		// Another version: what the shards counted that are removed stays.
		apply(t, db, policies(policy("p", "public.sessions", "batch: 60")))
		for range 2 {
			db.Exec(t, `select lapse.advance_arming(policy_id) from lapse.gate where state = 'arming'`)
		}
		once(t, newExecutor(t, db), "p")
		cut := one[string](t, db, "select r.outcome || ' ' || s.deleted from lapse.run r, lapse.statistics(r.run) s order by r.number limit 1")
		if want := "cut short " + one[string](t, db, "select $1::int::text", deleted); cut != want {
			t.Errorf("the run that was cut short says %s, want %s", cut, want)
		}
		if sum := one[int](t, db, "select sum(s.deleted)::int from lapse.run r, lapse.statistics(r.run) s"); sum != 500 {
			t.Errorf("all runs together say %d, want 500", sum)
		}
	})
}

// The executor's own login is no way to end a run that is not over, or to fill the catalog.
func TestAStolenLoginCannotEndARunOrFillTheCatalogWithReports(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		ctx := t.Context()
		thief, err := pgx.Connect(ctx, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = thief.Close(ctx) }()
		if _, err := thief.Exec(ctx, "select lapse.close_run($1, 0, 0, 0, null)", w.run.ID); err != nil {
			t.Fatal(err)
		}
		if got := lastRunSays(t, db); !strings.HasPrefix(got, "goes on") {
			t.Errorf("the run says: %s", got)
		}
		for what, statement := range map[string]string{
			"write reports": "insert into lapse.worker values ('x', 0, 'x', 'x')", "take reports away": "delete from lapse.worker",
			"write statistics": "update lapse.run set deleted = 7", "remove shards": "select lapse.remove_shards('{1}')",
			"report as 200 processes": "select lapse.report('h' || g, '{0}', '{running}', '{\"\"}', '{null}', '{\"\"}') from generate_series(1, 200) g",
		} {
			if _, err := thief.Exec(ctx, statement); err == nil {
				t.Errorf("the executor's login may %s", what)
			}
		}
		if _, err := thief.Exec(ctx, "select lapse.report('h', (select array_agg(g) from generate_series(0, 9999) g), array_fill('running'::text, '{10000}'), array_fill(repeat('ä', 9999), '{10000}'), array_fill('infinity'::timestamptz, '{10000}'), array_fill('clock'::text, '{10000}'))"); err != nil {
			t.Error(err)
		}
		if n := one[int](t, db, "select count(*) from lapse.worker"); n != 2 {
			t.Errorf("%d reports are there, want one of the process and one of the policy", n)
		}
		stranger := db.NewRole(t, "stranger")
		conn := db.ConnectAs(t, stranger)
		for _, statement := range []string{
			"select lapse.report('h', '{0}', '{running}', '{\"\"}', '{null}', '{\"\"}')", "select lapse.suspend_run(gen_random_uuid(), 'x')", "select lapse.note_due(gen_random_uuid(), 1)",
			"select lapse.close_run(gen_random_uuid(), 0, 0, 0, null)",
		} {
			if _, err := conn.Exec(ctx, statement); err == nil {
				t.Errorf("a stranger may %s", statement)
			}
		}
	})
}

func TestAProcessSaysWhatItIsAtAndTakesItBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		owned(t, db, "create table gone (id int primary key, at timestamptz)", "create index on gone (at, id)", "insert into gone values (1, '2000-01-01')")
		arm(t, db, policies(policy("p", "public.sessions", "every: 1 hour"), policy("q", "public.gone", "every: 1 hour")))
		owned(t, db, "alter table gone rename at to was")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		says := func() string {
			return one[string](t, db, "select coalesce(string_agg(coalesce(g.name, 'process') || ' ' || w.state || case when w.reason = '' then '' else ' because' end, ', ' order by w.policy_id), '') from lapse.worker w left join lapse.gate g using (policy_id)")
		}
		eventually(t, "the process says that it runs, and that a policy is stopped", func() bool { return says() == "process running, q stopped because" })
		db.Exec(t, "insert into lapse.halt (halted, reason) values (true, 'test')")
		eventually(t, "it says that it waits", func() bool { return says() == "process waiting because, q stopped because" })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := says(); got != "" {
			t.Errorf("stopped, and says: %s", got)
		}
	})
}

// The interval of a bucket and the policy's own are added one after the other: of their sum, a month would come before the bucket's days.
func TestTheOldestRowOfABucketFellDueWhenTheConditionSays(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table b (id int primary key, at timestamptz not null)", "create index on b (at, id)", "insert into b values (1, '2026-01-28 00:00Z')")
		apply(t, db, "policies:\n  - { name: b, table: public.b, state: armed, expire: { bucket: { column: at, span: 7 days }, after: 1 mon } }\n")
		login := schemas.RolesFor(schemas.DefaultRolePrefix).Executor
		counts, reads := db.ConnectAs(t, login), db.ConnectAs(t, login)
		policies, err := record.LoadInForce(t.Context(), reads)
		if err != nil || len(policies) != 1 {
			t.Fatalf("%d policies, %v", len(policies), err)
		}
		due := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC) // 4 February and a month
		for at, want := range map[time.Time]int64{due.Add(-time.Second): 0, due: 1} {
			left, err := survey.Remaining(t.Context(), counts, reads, &policies[0], at)
			if err != nil || left.Due != want || want > 0 && (left.Oldest == nil || !left.Oldest.Equal(due)) {
				t.Errorf("at %v: %+v, %v", at, left, err)
			}
		}
	})
}
