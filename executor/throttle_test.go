package executor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// glance asks guards with a look of their own each time.
type glance struct {
	*guards
	conn  guard.Querier
	clock time.Time
}

func (g *glance) at(t testing.TB, after time.Duration) guard.Answer {
	t.Helper()
	g.clock = g.clock.Add(after)
	answer, err := g.ask(t.Context(), g.conn, &record.InForce{Name: "p"}, g.clock)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// glances are those of the executor's login, with its rights only.
func glances(t testing.TB, db *pgtest.DB, l guard.Limits) *glance {
	t.Helper()
	conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	g := testGuards(t)
	g.list = guard.All(l, nil)
	return &glance{g, conn, time.Now()}
}

func TestSessionsThatWaitForLocksOfOurBatchesSlowThemDown(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		g := glances(t, db, guard.Limits{})
		ours, somebodys, theirs := db.Connect(t), db.Connect(t), db.Connect(t)
		for _, conn := range []interface{ Close(context.Context) error }{ours, somebodys, theirs} {
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		}
		lock := func(conn guard.Querier, id int) {
			t.Helper()
			var got int
			if err := conn.QueryRow(t.Context(), "select id from public.sessions where id = $1 for update", id).Scan(&got); err != nil {
				t.Fatal(err)
			}
		}
		for _, conn := range []interface {
			guard.Querier
		}{ours, somebodys} {
			var nothing *int
			_ = conn.QueryRow(t.Context(), "begin").Scan(&nothing)
		}
		lock(ours, 1)
		lock(somebodys, 2)
		g.setBackend(0, ours.PgConn().PID())
		waits := func(id int) (ended chan error) {
			ended = make(chan error, 1)
			go func() {
				_, err := theirs.Exec(t.Context(), fmt.Sprintf("update public.sessions set note = 'seen' where id = %d", id))
				ended <- err
			}()
			eventually(t, "the application waits", func() bool {
				return one[bool](t, db, fmt.Sprintf("select cardinality(pg_blocking_pids(%d)) > 0", theirs.PgConn().PID()))
			})
			return ended
		}
		asked := func(when string, want float64) {
			t.Helper()
			if got := askedOf(t, g.conn, []int32{int32(ours.PgConn().PID())}); got != want {
				t.Errorf("%s: pg_blocking_pids was asked of %v sessions, want %v", when, got, want)
			}
		}
		ended := waits(2)
		if a := g.at(t, factsInterval); a.Verdict != guard.Go {
			t.Errorf("somebody waits for somebody else: %+v", a)
		}
		asked("somebody waits for somebody else", 0)
		_, _ = somebodys.Exec(t.Context(), "rollback")
		<-ended
		ended = waits(1)
		if a := g.at(t, factsInterval); a.Verdict != guard.Slow || a.Reason != guard.LockWaiters {
			t.Errorf("the application waits for a batch: %+v, want that batches slow down", a)
		}
		asked("the application waits for a batch", 1)
		_, _ = ours.Exec(t.Context(), "rollback")
		<-ended
		if a := g.at(t, time.Minute); a.Verdict != guard.Go {
			t.Errorf("nobody waits any more: %+v", a)
		}
	})
}

// overheard passes on what it is asked, and remembers it.
type overheard struct {
	guard.Querier
	sql  string
	args []any
}

func (o *overheard) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	o.sql, o.args = sql, args
	return o.Querier.QueryRow(ctx, sql, args...)
}

// askedOf is of how many sessions one look asks which others block them: pg_blocking_pids holds up all locking of the server.
func askedOf(t testing.TB, conn guard.Querier, backends []int32) (rows float64) {
	t.Helper()
	look := overheard{Querier: conn}
	if _, err := guard.Read(t.Context(), &look, backends); err != nil {
		t.Fatal(err)
	}
	rows = -1
	var plan []map[string]any
	if err := conn.QueryRow(t.Context(), "explain (analyze, format json) "+look.sql, look.args...).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	var visit func(node map[string]any)
	visit = func(node map[string]any) {
		if filter, ok := node["Filter"].(string); ok && strings.Contains(filter, "pg_blocking_pids") {
			rows = max(rows, 0) + node["Actual Loops"].(float64)*(node["Actual Rows"].(float64)+node["Rows Removed by Filter"].(float64))
		}
		below, _ := node["Plans"].([]any)
		for _, b := range below {
			visit(b.(map[string]any))
		}
	}
	visit(plan[0]["Plan"].(map[string]any))
	return rows
}

func TestBatchesSlowDownAndStopAsTheSlotsLogFillsUp(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		requireAuditOf(t, db)
		g := glances(t, db, guard.Limits{})
		write := func(megabytes int) {
			t.Helper()
			db.Exec(t, fmt.Sprintf("select pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) from generate_series(1, %d)", megabytes),
				"select pg_logical_emit_message(true, 'noise', 'flushed')")
		}
		look := func(after time.Duration, when string, want guard.Verdict) {
			t.Helper()
			pgtest.Beat(t, db)
			if a := g.at(t, after); a.Verdict != want || want != guard.Go && a.Reason != guard.Headroom {
				t.Errorf("%s: %+v, want %v", when, a, want)
			}
		}
		look(0, "nothing is kept", guard.Go)
		write(90) // of some 160 MB
		look(factsInterval, "half is used", guard.Slow)
		write(40)
		look(factsInterval, "three quarters are", guard.Wait)
		look(10*time.Second, "and the slot's log does not move", guard.Refuse)
		eventually(t, "the auditor has caught up", func() bool {
			db.Exec(t, "checkpoint")
			confirm(t, db)
			pgtest.Beat(t, db)
			return g.at(t, factsInterval).Verdict == guard.Go
		})
	}, pgtest.Settings(map[string]string{"max_slot_wal_keep_size": "128MB", "min_wal_size": "256MB", "max_wal_size": "512MB"}))
}

// requireAuditOf makes an installation without policies one that needs its slot, and makes that.
func requireAuditOf(t *testing.T, db *pgtest.DB) {
	t.Helper()
	sessions(t, db, 5, 5)
	arm(t, db, policies(policy("p", "public.sessions")))
	requireAudit(t, db)
	makeSlot(t, db)
	pgtest.Beat(t, db)
}

func TestAStandbyThatLagsBehindSlowsBatchesDownAndStopsThem(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		standby := db.Standby(t)
		// A standby that has not said yet what it has replayed is not known to lag.
		eventually(t, "the standby has said what it has replayed", func() bool {
			return one[bool](t, db, "select exists (select from pg_stat_replication where replay_lsn is not null and state = 'streaming')")
		})
		g := glances(t, db, guard.Limits{})
		write := func() {
			t.Helper()
			db.Exec(t, "select pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) from generate_series(1, 3)",
				"select pg_logical_emit_message(true, 'noise', 'flushed')")
		}
		standby.Exec(t, "select pg_wal_replay_pause()")
		g.at(t, 0)
		write()
		g.at(t, factsInterval)
		if a := g.at(t, time.Hour); a.Verdict != guard.Go {
			t.Errorf("without the right to see standbys: %+v", a)
		}
		db.Exec(t, "grant pg_read_all_stats to lapse_executor")
		if a := g.at(t, factsInterval); a.Verdict != guard.Wait || a.Reason != guard.ReplicaLag {
			t.Errorf("an hour behind: %+v, want that batches wait", a)
		}
		standby.Exec(t, "select pg_wal_replay_resume()")
		standby.CatchUp(t, db)
		eventually(t, "the standby has said so", func() bool { return g.at(t, factsInterval).Verdict == guard.Go })
		standby.Exec(t, "select pg_wal_replay_pause()")
		write()
		g.at(t, factsInterval)
		if a := g.at(t, 15*time.Second); a.Verdict != guard.Slow || a.Reason != guard.ReplicaLag {
			t.Errorf("15 s behind: %+v, want that batches slow down", a)
		}
		db.Exec(t, "select pg_create_logical_replication_slot('reader', 'test_decoding')")
		g.list = guard.All(guard.Limits{Delayed: []string{db.Name + "_standby"}}, nil)
		if a := g.at(t, time.Hour); a.Verdict != guard.Go {
			t.Errorf("a standby that lags on purpose: %+v", a)
		}
	})
}

func TestASnapshotThatIsHeldForLongSlowsBatchesDown(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "do $$ begin execute format('grant pg_read_all_stats to lapse_executor'); end $$")
		g := glances(t, db, guard.Limits{OldSnapshot: time.Nanosecond})
		conn := db.Connect(t)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		if _, err := conn.Exec(t.Context(), "begin isolation level repeatable read"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "select count(*) from pg_class"); err != nil {
			t.Fatal(err)
		}
		if a := g.at(t, factsInterval); a.Verdict != guard.Slow || a.Reason != guard.OldSnapshot {
			t.Errorf("while a snapshot is held: %+v", a)
		}
		g.list = guard.All(guard.Limits{}, nil)
		if a := g.at(t, factsInterval); a.Verdict != guard.Go {
			t.Errorf("it is held for less than a quarter of an hour: %+v", a)
		}
	})
}

func TestDeadRowsThatOutrunVacuumSlowTheirPolicyDownUnlessItsOwnerIsInAHurry(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table sessions (id bigint primary key, at timestamptz) with (autovacuum_enabled = off)",
			"create index on sessions (at, id)", "create table others (id bigint primary key, at timestamptz)",
			"insert into sessions select g, now() from generate_series(1, 101000) g", "analyze sessions")
		owned(t, db, "delete from sessions where id > 500")
		eventually(t, "the statistics know of the dead rows", func() bool {
			return one[int64](t, db, "select n_dead_tup from pg_stat_user_tables where relname = 'sessions'") > 100_000
		})
		arm(t, db, policies(policy("p", "public.sessions"), policy("q", "public.others")))
		g := glances(t, db, guard.Limits{})
		list, err := record.LoadInForce(t.Context(), connectTo(t, db))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(name schemas.PolicyName, pace string) guard.Answer {
			t.Helper()
			p := find(list, name)
			p.Limits = policyfile.Limits{Pace: pace}
			if err := g.readTable(t.Context(), g.conn, p, g.clock); err != nil {
				t.Fatal(err)
			}
			a, err := g.ask(t.Context(), g.conn, p, g.clock)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if a := ask("p", ""); a.Verdict != guard.Slow || a.Reason != guard.VacuumBehind {
			t.Errorf("with 100,500 dead rows and 500 live ones: %+v", a)
		}
		for name, a := range map[string]guard.Answer{"another table": ask("q", ""), "a hurried policy": ask("p", "unlimited")} {
			if a.Verdict != guard.Go {
				t.Errorf("%s: %+v", name, a)
			}
		}
		db.Exec(t, "vacuum public.sessions")
		g.clock = g.clock.Add(tableInterval)
		eventually(t, "the statistics know of the vacuum", func() bool {
			g.clock = g.clock.Add(tableInterval)
			return ask("p", "").Verdict == guard.Go
		})
	})
}

func TestWhenConnectionsAreFewAllWorkersButOneGiveTheirsBack(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions", "every: 1 second", "batch: 10")))
		e, log := guarded(t, db, newSaying("", guard.Answer{}), func(c *Config) { c.Limits.Workers = 2 })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		ofExecutor := "select count(*)::int from pg_stat_activity where usename = 'lapse_executor'"
		eventually(t, "both workers have connections", func() bool { return one[int](t, db, ofExecutor) == 4 })
		for range 53 {
			connectTo(t, db)
		}
		eventually(t, "one worker's are left", func() bool { return one[int](t, db, ofExecutor) == 2 })
		owned(t, db, "insert into sessions select g, now() - interval '40 days' from generate_series(1001, 1050) g")
		eventually(t, "and it works", func() bool { return one[int](t, db, "select count(*) from sessions where id > 1000") == 0 })
		if log.count("reason="+string(guard.Crowded)) == 0 || log.count("gives its connections back") == 0 {
			t.Error("the log does not say so")
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("stopped with %v", err)
		}
	}, pgtest.Settings(map[string]string{"max_connections": "63", "superuser_reserved_connections": "3"}))
}
