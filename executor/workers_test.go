package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// overlapping counts the batches that ran beside another one. on says what the two have in common or not: a and b are rows of
// lapse.batch. Two batches that follow one another never overlap: the next one starts after the former's end.
func overlapping(t testing.TB, db *pgtest.DB, on string) int {
	t.Helper()
	return one[int](t, db, `
		select count(*) from lapse.batch a join lapse.batch_result ar using (batch)
		 where exists (select from lapse.batch b join lapse.batch_result br using (batch)
		                where b.batch <> a.batch and b.started_at < ar.finished_at and a.started_at < br.finished_at and `+on+`)`)
}

func TestOnePolicyWithTwoLeavesUsesBothWorkersAndOneWithASingleLeafOne(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		parts(t, db, 1500)
		arm(t, db, policies(policy("p", "public.visits", "batch: 10", "pace: unlimited")))
		h := recorded(t, db)
		s := once(t, newExecutor(t, db))
		if only(t, s).Deleted != 3000 || only(t, s).Outcome != Finished {
			t.Errorf("the pass did %+v", only(t, s))
		}
		if n := overlapping(t, db, "b.target <> a.target"); n == 0 {
			t.Error("no two batches ran side by side")
		}
		if n := overlapping(t, db, "b.target = a.target"); n != 0 {
			t.Errorf("%d batches ran beside another on the same leaf", n)
		}
		noRowTwice(t, h, "public.visits_", 3000)
	})
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 1500, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		once(t, newExecutor(t, db))
		if n := overlapping(t, db, "true"); n != 0 {
			t.Errorf("%d batches on the single leaf ran side by side", n)
		}
	})
}

// noRowTwice reads the log: every row of the tables whose names begin so went once.
func noRowTwice(t *testing.T, h *history, prefix string, due int) {
	t.Helper()
	eachOnce(t, h, "DELETE", prefix, due)
}

// eachOnce reads the log: every row of the tables whose names begin so was deleted, or updated, once, and by a batch.
func eachOnce(t *testing.T, h *history, kind, prefix string, due int) {
	t.Helper()
	seen := map[string]bool{}
	for _, tx := range h.read(t) {
		claim := tx.batch(t)
		for _, c := range tx.changes {
			if c.kind != kind || !strings.HasPrefix(c.table, prefix) {
				continue
			}
			key := c.table + "/" + c.row["id"]
			if claim == nil || seen[key] {
				t.Fatalf("a row of %s went twice, or without a ledger row", c.table)
			}
			seen[key] = true
		}
	}
	if len(seen) != due {
		t.Errorf("%d rows were deleted, want %d", len(seen), due)
	}
}

func TestTwoPoliciesRunAtOnceWithTwoWorkersAndNotWithOne(t *testing.T) {
	t.Parallel()
	for workers, beside := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				two(t, db, 800)
				once(t, newExecutor(t, db, func(c *Config) { c.Limits.Workers = workers }))
				if n := overlapping(t, db, "b.policy <> a.policy"); n > 0 != beside {
					t.Errorf("with %d workers %d batches ran beside another policy's", workers, n)
				}
				if n := one[int](t, db, "select (select count(*) from a) + (select count(*) from b)"); n != 0 {
					t.Errorf("%d rows are left", n)
				}
			})
		})
	}
}

// Ten policies with backlog share two workers: none is through before each has had turns. How far they are from each other is no measure of
// that: a busy machine holds one worker up for rounds.
func TestTenPoliciesWithBacklogAreServedInTurnsByTwoWorkers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const tables, due, batch, share = 10, 200, 10, 20
		var entries []string
		deleted := map[schemas.PolicyName]int64{} // by every policy, those too that were not served yet
		for i := range tables {
			name := fmt.Sprintf("t%d", i)
			owned(t, db, fmt.Sprintf("create table %s (id int primary key, at timestamptz); create index on %[1]s (at, id)", name),
				fmt.Sprintf("insert into %s select g, now() - interval '40 days' from generate_series(1, %d) g", name, due))
			entries = append(entries, policy(name, "public."+name, fmt.Sprintf("batch: %d", batch), "pace: unlimited"))
			deleted[schemas.PolicyName(name)] = 0
		}
		arm(t, db, policies(entries...))
		served := -1 // how many policies had been served when the first was through; -1: none was
		once(t, newExecutor(t, db, func(c *Config) {
			c.Limits.Workers, c.Limits.TurnRows, c.Limits.BatchTime = 2, share, time.Hour
			c.Progress = func(p Progress) {
				deleted[p.Policy] = p.Deleted
				if p.Deleted < due || served >= 0 {
					return
				}
				served = 0
				for _, n := range deleted {
					if n > 0 {
						served++
					}
				}
			}
		}))
		if served != tables {
			t.Errorf("%d of %d policies had been served when the first was through", served, tables)
		}
		if n := one[int](t, db, "select count(distinct policy) from lapse.batch"); n != tables {
			t.Errorf("%d policies were served", n)
		}
	})
}

// So do all times of a session: executor/batch has their test.
func TestALeaseOutlivesThePauseBetweenTwoBatches(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		lease := time.Duration(one[float64](t, db, "select extract(epoch from lapse.lease_time())::float8") * float64(time.Second))
		if 2*longestPause > lease {
			t.Errorf("a pause is up to %v beside a lease of %v", longestPause, lease)
		}
	})
}

// A worker that lost its connection gives its shard back with the next one, before another worker goes on with it.
func TestALeaseThatALostConnectionLeftBehindIsGivenBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		run := open(t, db, "p")
		if _, err := run.Release(t.Context(), run.a.Lease); err != nil {
			t.Fatal(err)
		}
		w := newTestWorker(t, db)
		defer w.close()
		if err := w.connect(t.Context(), notAtAll); err != nil {
			t.Fatal(err)
		}
		l, err := w.session.Acquire(t.Context(), run.run.ID)
		if err != nil || l == nil {
			t.Fatalf("got %v, %v", l, err)
		}
		_ = w.session.Control.Close(t.Context())
		w.giveBack(t.Context(), l)
		if held := one[int](t, db, "select count(holder) from lapse.shard"); held != 1 {
			t.Fatalf("%d shards are held while the connection is lost", held)
		}
		if err := w.connect(t.Context(), notAtAll); err != nil {
			t.Fatal(err)
		}
		if held := one[int](t, db, "select count(holder) from lapse.shard"); held != 0 {
			t.Errorf("%d shards are held after the connection is back", held)
		}
	})
}

// Each worker is another holder: with one name for both, each would take the other's shards.
func TestWorkersOfOneProcessAreDifferentHolders(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		run := open(t, db, "p")
		if _, err := run.Release(t.Context(), run.a.Lease); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		s := newScheduler(endless{e}, e.memory, e.now)
		var leases []*batch.Lease
		for i := range 2 {
			w := e.newWorker(i, s)
			defer w.close()
			if err := w.connect(t.Context(), notAtAll); err != nil {
				t.Fatal(err)
			}
			l, err := w.session.Acquire(t.Context(), run.run.ID)
			if err != nil {
				t.Fatal(err)
			}
			if l != nil {
				leases = append(leases, l)
			}
		}
		if len(leases) != 1 {
			t.Errorf("%d workers of one process hold the one shard", len(leases))
		}
	})
}

// What one worker cannot do, because its server process is ended, the others and its next connection do.
func TestARunOfManyWorkersOutlivesTheLossOfTheirConnections(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 4000, 300
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		h := recorded(t, db)
		kills := 0
		s := once(t, newExecutor(t, db, func(c *Config) {
			c.Limits.Workers = 4
			batches := 0
			c.Progress = func(Progress) {
				if batches++; batches%60 == 0 && kills < 4 {
					kills++
					db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity
						where datname = current_database() and application_name like 'lapse executor%' order by random() limit 2`)
				}
			}
		}))
		if kills < 3 {
			t.Fatalf("connections were ended %d times: there was too little work", kills)
		}
		isWhole(t, db, h, due, live)
		if p := only(t, s); p.Deleted != due || p.Cascaded != due/10 || p.Outcome != Finished {
			t.Errorf("Once says %+v", p)
		}
	})
}

// A worker whose fellow has ended the turn begins no other batch, and keeps no lease.
func TestAWorkerLeavesItsShardWhenTheTurnHasEndedForAnother(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		run := open(t, db, "p")
		if _, err := run.Release(t.Context(), run.a.Lease); err != nil {
			t.Fatal(err)
		}
		w := newTestWorker(t, db)
		defer w.close()
		if err := w.connect(t.Context(), notAtAll); err != nil {
			t.Fatal(err)
		}
		l, err := w.session.Acquire(t.Context(), run.run.ID)
		if err != nil || l == nil {
			t.Fatalf("got %v, %v", l, err)
		}
		turn := newTurn(run.policy, w.memory(run.policy))
		turn.opened(&run.run, 1000, time.Now().Add(time.Hour))
		turn.join()
		turn.leave(turnBlocked)
		if end, err := w.shard(t.Context(), t.Context(), turn, l); end != turnGoesOn || err != nil {
			t.Errorf("it ended with %v, %v", end, err)
		}
		if got := one[string](t, db, "select (select count(*) from lapse.batch) || ' ' || (select count(holder) from lapse.shard)"); got != "0 0" {
			t.Errorf("batches and leases: %s, want none", got)
		}
	})
}

// A worker that meets what stops its policy stops it for its fellow too.
func TestWhatStopsAPolicyStopsAllItsWorkers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		parts(t, db, 2000)
		arm(t, db, policies(policy("p", "public.visits", "batch: 10", "pace: unlimited")))
		batches := 0
		e := newExecutor(t, db, func(c *Config) {
			c.Progress = func(Progress) {
				if batches++; batches == 10 {
					db.Exec(t, "alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) strict")
				}
			}
		})
		s, err := e.Once(t.Context(), nil)
		var tampered *batch.TamperedError
		found := errors.As(err, &tampered) || errors.Is(err, batch.ErrFunctionsChanged) // before a batch, or in the other worker's
		if !found || only(t, s).Outcome != Stopped {
			t.Errorf("got %+v, %v; want a stopped policy", s.Policies, err)
		}
		// Each worker's open batch may be rolled back, or have begun before, and so may the one that was begun with its COMMIT. There are 400.
		if batches > 14 {
			t.Errorf("%d batches went after the function was changed", batches-10)
		}
		held := one[int](t, db, "select count(holder) from lapse.shard")
		if held != 0 || !slices.ContainsFunc(e.policyStates(), func(p policyStatus) bool { return p.stopped != "" }) {
			t.Errorf("%d shards are held, the status is %+v", held, e.policyStates())
		}
	})
}
