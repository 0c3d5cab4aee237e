package executor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// A COMMIT waits for a synchronous standby that is away, for longer than the executor waits for an answer. Its batch is
// durable here already: nothing may be counted twice when the standby is back, and no cancel request may end the wait.
func TestACommitThatWaitsForAStandbyLongerThanAnAnswerMayTakeIsCountedOnce(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		two(t, db, 600)
		log := &logBuffer{}
		var batches atomic.Int64
		waiting := make(chan struct{})
		e := newExecutor(t, db, func(c *Config) {
			c.Limits.Workers, c.Limits.answerTime, c.Logger = 2, 500*time.Millisecond, log.logger()
			c.Progress = func(Progress) {
				if batches.Add(1) == 20 {
					close(waiting)
				}
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		<-waiting
		db.Exec(t, "set synchronous_commit = local", "alter system set synchronous_standby_names = 'away'", "select pg_reload_conf()")
		eventually(t, "a worker gave its batch's COMMIT up", func() bool { return log.count("a commit was not answered") > 0 })
		stuck := one[int](t, db, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'")
		if stuck == 0 {
			t.Error("no commit waits any more: something has ended the wait")
		}
		db.Exec(t, "set synchronous_commit = local", "alter system reset synchronous_standby_names", "select pg_reload_conf()")
		eventually(t, "all rows are gone", func() bool {
			return one[int](t, db, "select (select count(*) from a) + (select count(*) from b)") == 0
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := one[int](t, db, "select sum(deleted)::int from lapse.batch_result"); n != 1200 {
			t.Errorf("the ledger has %d rows, want 1200", n)
		}
		if n := counted(t, e, "lapse_rows_deleted_total"); n != 1200 {
			t.Errorf("%v rows were counted, want 1200", n)
		}
	})
}

// A drop that waited for a standby would keep all readers out meanwhile. What goes before it waits first.
func TestNoPartitionIsDroppedWhileASynchronousStandbyIsAway(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 2, 10)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		db.Exec(t, "set synchronous_commit = local", "alter system set synchronous_standby_names = 'away'", "select pg_reload_conf()")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		waiting := func() int {
			return one[int](t, db, "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'lapse %'")
		}
		eventually(t, "something of it waits for the standby", func() bool { return waiting() > 0 })
		if n := one[int](t, db, "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation in (select relid from pg_partition_tree('parts'))"); n != 0 {
			t.Errorf("%d locks keep readers out", n)
		}
		db.Exec(t, "set synchronous_commit = local", "alter system reset synchronous_standby_names", "select pg_reload_conf()")
		eventually(t, "the partitions are dropped", func() bool { return leavesOf(t, db) == "parts_half parts_rest" })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
