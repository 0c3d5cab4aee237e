package executor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// spread makes a partitioned table with due and live rows in each of its four leaves, and a child that a cascade deletes.
func spread(t *testing.T, db *pgtest.DB, due, live int) {
	t.Helper()
	statements := []string{"create table sessions (id bigint primary key, at timestamptz, note text) partition by hash (id)"}
	for i := range 4 {
		statements = append(statements, fmt.Sprintf("create table sessions%d partition of sessions for values with (modulus 4, remainder %d)", i, i))
	}
	statements = append(statements, "create index on sessions (at, id)",
		fmt.Sprintf("insert into sessions select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", due),
		fmt.Sprintf("insert into sessions select %d + g, now() - interval '20 days' from generate_series(1, %d) g", due, live),
		"create table logins (session bigint primary key references sessions on delete cascade)",
		"insert into logins select id from sessions where id % 10 = 0", "analyze")
	owned(t, db, statements...)
}

// isWhole holds log, ledger and table against each other after a run that was disturbed.
func isWhole(t *testing.T, db *pgtest.DB, h *history, due, live int64) {
	t.Helper()
	var batches, gone, along int64
	seen := map[string]bool{}
	for _, tx := range h.read(t) {
		claim := tx.batch(t)
		for _, c := range tx.changes {
			switch {
			case c.kind != "DELETE" || !strings.HasPrefix(c.table, "public."):
			case claim == nil:
				t.Fatalf("transaction %s deleted a row of %s without a ledger row", tx.xid, c.table)
			case c.table == "public.logins":
				along++
			case seen[c.row["id"]]:
				t.Fatalf("a row went twice")
			default:
				gone++
				seen[c.row["id"]] = true
			}
		}
		if claim != nil {
			batches++
		}
	}
	if gone != due || along != due/10 {
		t.Errorf("the log has %d rows and %d by cascade, want %d and %d", gone, along, due, due/10)
	}
	if rows := one[int64](t, db, "select count(*) from lapse.batch"); rows != batches {
		t.Errorf("the ledger has %d rows, the log %d transactions that deleted", rows, batches)
	}
	if sum := one[int64](t, db, "select sum(deleted)::bigint from lapse.batch_result"); sum != due {
		t.Errorf("the ledger says %d rows, want %d", sum, due)
	}
	if sum := one[int64](t, db, "select sum(deleted)::bigint from lapse.shard"); sum != due {
		t.Errorf("the shards say %d rows, want %d", sum, due)
	}
	left := one[string](t, db, "select count(*) filter (where at < now() - interval '30 days') || ' due, ' || count(*) from sessions")
	if want := fmt.Sprintf("0 due, %d", live); left != want {
		t.Errorf("left: %s; want %s", left, want)
	}
	for _, c := range ledger(t, db) {
		if !c.claim.Verify(testKey, c.mac) {
			t.Errorf("the MAC of batch %v does not verify", c.claim.Batch)
		}
	}
}

func TestAfterKillsAtAnyMomentAnotherProcessGoesOnAndNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 6000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50", "pace: unlimited")))
		h := recorded(t, db)
		url := db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
		kills := 0
		for ; kills < 8; kills++ {
			c := startChild(t, url)
			if !c.batches(1 + rand.IntN(20)) {
				break
			}
			c.kill(t)
			db.Exec(t, expireLeases)
		}
		if kills < 3 {
			t.Fatalf("the work was done after %d kills: there was too little of it", kills)
		}
		last := startChild(t, url)
		last.wait(t)
		isWhole(t, db, h, due, live)
	})
}

// A lease that its holder cannot give back ends by itself, and Once waits for that.
//
//lapse:long
func TestAKilledExecutorsShardIsTakenOverWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 3000, 100)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		c := startChild(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
		if !c.batches(3) {
			t.Fatal("the executor ended before it was killed")
		}
		c.kill(t)
		killed := time.Now()
		var first time.Time
		once(t, newExecutor(t, db, func(c *Config) {
			c.Progress = func(Progress) {
				if first.IsZero() {
					first = time.Now()
				}
			}
		}))
		// Its last batch may have been on its way.
		lease := time.Duration(one[float64](t, db, "select extract(epoch from lapse.lease_time())::float8") * float64(time.Second))
		if took := first.Sub(killed); first.IsZero() || took < lease-5*time.Second || took > 2*lease {
			t.Errorf("the shard was taken over after %v, want about %v", took, lease)
		}
		if got := one[int64](t, db, "select sum(deleted)::bigint from lapse.batch_result"); got != 3000 {
			t.Errorf("the ledger has %d rows, want 3000", got)
		}
	})
}

func TestAProcessThatWasStoppedPastItsLeaseIsRefusedWhenItGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 3000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		h := recorded(t, db)
		c := startChild(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
		if !c.batches(5) {
			t.Fatal("the executor ended before it was stopped")
		}
		if err := c.command.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Its transaction, if it has one open, ends by idle_in_transaction_session_timeout; then its shards are free.
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db))
		ledgerRows := one[int](t, db, "select count(*) from lapse.batch")
		if err := c.command.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.wait(t)
		if rows := one[int](t, db, "select count(*) from lapse.batch"); rows != ledgerRows {
			t.Errorf("the stopped process wrote %d ledger rows when it went on", rows-ledgerRows)
		}
		// It did go on, and was refused; or its open transaction had ended, or it had waited for the answer too long.
		if log := c.log(); !strings.Contains(log, schemas.SQLStateLease) && !strings.Contains(log, schemas.SQLStateIdleInTransactionTimeout) &&
			!strings.Contains(log, schemas.SQLStateTransactionTimeout) && !strings.Contains(log, "the server did not answer for") {
			t.Errorf("the stopped process was not refused; it says:\n%s", log)
		}
		isWhole(t, db, h, due, live)
	})
}

func TestTheExecutorOutlivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 6000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50", "pace: unlimited")))
		h := recorded(t, db)
		var batches atomic.Int64
		e := newExecutor(t, db, func(c *Config) { c.Progress = func(Progress) { batches.Add(1) } })
		ended := make(chan error, 1)
		go func() {
			_, err := e.Once(t.Context(), nil)
			ended <- err
		}()
		for crash := range int64(2) {
			at := crash*40 + 1 + rand.Int64N(30)
			eventually(t, "the executor is at work", func() bool { return batches.Load() >= at })
			if err := db.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := db.Server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(ended) > 0 || one[int](t, db, "select count(*) from lapse.shard where not done") == 0 {
				t.Fatal("the work was done before the crash: there was too little of it")
			}
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		h.conn = db.Connect(t)
		isWhole(t, db, h, due, live)
	})
}

// Several executors work on one run: each shard in one pair of hands at a time.
func TestManyExecutorsShareARun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 4000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50", "pace: unlimited")))
		h := recorded(t, db)
		type answer struct {
			summary Summary
			err     error
		}
		answers := make(chan answer, 3)
		for range cap(answers) {
			e := newExecutor(t, db, func(c *Config) { c.Limits.TurnRows = 200 })
			go func() {
				s, err := e.Once(t.Context(), nil)
				answers <- answer{s, err}
			}()
		}
		took, sum := 0, int64(0)
		for range cap(answers) {
			got := <-answers
			if got.err != nil {
				t.Error(got.err)
			}
			for _, p := range got.summary.Policies {
				if sum += p.Deleted; p.Deleted > 0 {
					took++
				}
			}
		}
		if took < 2 || sum != due {
			t.Errorf("%d executors deleted %d rows, want several and %d", took, sum, due)
		}
		isWhole(t, db, h, due, live)
	})
}

func TestAsProgramsAreStoppedNothingIsLeftOpen(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5000, 100)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		ctx, stop := context.WithCancel(t.Context())
		batches := 0
		e := newExecutor(t, db, func(c *Config) {
			c.Progress = func(Progress) {
				if batches++; batches == 5 {
					stop()
				}
			}
		})
		if err := e.Run(ctx); err != nil {
			t.Fatalf("stopped with %v", err)
		}
		if batches != 5 {
			t.Errorf("%d batches were begun after the executor was asked to stop", batches-5)
		}
		if held := one[int](t, db, "select count(*) from lapse.shard where holder is not null or lease_until is not null"); held != 0 {
			t.Errorf("%d leases were not given back", held)
		}
		eventually(t, "its session is gone", func() bool {
			return one[int](t, db, "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'lapse executor%'") == 0
		})
	})
}

func TestAnOpenBatchIsRolledBackInBoundedTimeWhenItCannotEnd(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		plant(t, db, "perform pg_sleep(60);")
		e := newExecutor(t, db, func(c *Config) { c.Limits.BatchTime = 2 * time.Second }) // it may take longer than stopTime
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the batch is at work", func() bool {
			return one[bool](t, db, "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')")
		})
		begun := time.Now()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > stopTime+20*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
			t.Errorf("%d rows are left of 55", left)
		}
	})
}
