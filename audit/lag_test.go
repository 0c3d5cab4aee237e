package audit_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

func TestTheLagIsTheAgeOfTheFirstEndThatWasNotRead(t *testing.T) {
	t.Parallel()
	var u audit.LagTracker
	at := func(second int) time.Time { return time.Unix(1_000_000+int64(second), 0) }
	want := func(second, lag int) {
		t.Helper()
		if got := u.Lag(at(second)); got != time.Duration(lag)*time.Second {
			t.Errorf("at %d the lag is %v, want %d s", second, got, lag)
		}
	}
	u.Restart(100)
	u.Observe(100, at(0))
	want(50, 0)
	u.Observe(200, at(60))
	u.Observe(200, at(65)) // the same end is no later one
	u.Observe(300, at(70))
	want(80, 20)
	u.ReadUpTo(199)
	want(80, 20)
	u.ReadUpTo(200)
	want(80, 10)
	u.Restart(100) // sent again; what was read once is unread when it is seen
	want(80, 10)
	u.ReadUpTo(300)
	want(80, 0)
	u.Observe(400, at(90))
	u.Observe(50, at(95)) // another server
	want(100, 0)
	u.Observe(500, at(100))
	for second := range 10_000 { // what is forgotten makes it longer, never shorter
		u.Observe(schemas.LSN(501+second), at(101+second))
	}
	want(10_101, 10_001)
	u.ReadUpTo(5500)
	if lag := u.Lag(at(10_101)); lag < 5000*time.Second || lag > 10_001*time.Second {
		t.Errorf("half is read: %v", lag)
	}
	u.ReadUpTo(10_500)
	want(20_000, 0)
}

// looking makes the auditor check its server often, and be impatient.
func (r *rig) looking(t *testing.T, every, bound time.Duration) *audit.Auditor {
	t.Helper()
	a := r.auditor(t, func(c *audit.Config) {
		c.Metrics = r.metrics(t)
		c.Stream.StatusInterval = time.Second
		c.OnProbe(func(ctx context.Context, pid uint32) (schemas.LSN, error) {
			conn, err := pgx.Connect(ctx, r.settings.URL)
			if err != nil {
				return 0, err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			if err := replication.CheckAsync(ctx, conn, pid, "lapse"); err != nil {
				return 0, err
			}
			return replication.End(ctx, conn)
		})
	})
	a.Impatient(every, bound)
	return a
}

func (r *rig) metrics(t *testing.T) *audit.Metrics {
	t.Helper()
	if r.measured == nil {
		r.measured = audit.NewMetrics()
	}
	return r.measured
}

func (r *rig) lag(t *testing.T) float64 {
	t.Helper()
	return gather(t, r.metrics(t))["lapse_audit_lag_seconds"]
}

// walsender is the server process of the slot.
func (r *rig) walsender(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1`, r.settings.Slot).
		Scan(&pid)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestAFrozenWalsenderMakesTheAuditorNotReady(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.startWith(t, r.looking(t, 100*time.Millisecond, 3*time.Second))
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		pid := r.walsender(t, w.conn)
		thaw := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
		t.Cleanup(thaw)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the auditor says that nothing comes", func() bool {
			err := run.Ready()
			return err != nil && strings.Contains(err.Error(), "sent nothing")
		})
		r.commit(t, w, 3, user)
		for _, seconds := range []float64{1, 2, 4} {
			eventually(t, "the lag grows", func() bool { return r.lag(t) > seconds })
		}
		thaw()
		eventually(t, "the auditor is ready again", func() bool { return run.Ready() == nil && r.lag(t) < 1 })
		r.catchUp(t, w.conn)
		run.end(t)
	})
}

//lapse:long
func TestTheLagKnowsWhatTheServerIsStillReading(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table unpublished (id bigint primary key)`,
			`insert into unpublished select generate_series(1, 800000)`)
		run := r.startWith(t, r.looking(t, 50*time.Millisecond, time.Minute))
		r.catchUp(t, conn)
		eventually(t, "nothing is unread", func() bool { return r.lag(t) == 0 })
		r.db.Exec(t, `delete from unpublished`)
		end, pid := walEnd(t, conn), r.walsender(t, conn)
		unread, longest := time.Duration(0), 0.0
		began := time.Now()
		eventually(t, "it is read", func() bool {
			var sent schemas.LSN
			if err := conn.QueryRow(t.Context(), `select sent_lsn::text from pg_stat_replication where pid = $1`, pid).Scan(&sent); err != nil {
				t.Fatal(err)
			}
			lag := r.lag(t)
			if sent < end {
				unread, longest = time.Since(began), max(longest, lag)
			}
			return sent >= end && lag == 0
		})
		t.Logf("not read for %v, a lag of %.2f s", unread, longest)
		if longest == 0 && unread > time.Second {
			t.Error("there was no lag while something was unread")
		}
		run.end(t)
	})
}

func TestAnAuditorThatWouldBeASynchronousStandbyLetsGoAndComesBack(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		conn := db.Connect(t)
		db.Exec(t, `alter database `+db.Name+` set synchronous_commit = local`) // no standby is there to acknowledge
		w := &writer{conn: db.Connect(t)}
		run := r.startWith(t, r.looking(t, 100*time.Millisecond, 30*time.Second))
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		for _, names := range []string{`*`, `FIRST 1 (standby1, lapse)`} {
			db.Exec(t, fmt.Sprintf(`alter system set synchronous_standby_names = '%s'`, names), `select pg_reload_conf()`)
			eventually(t, "the auditor says why it is not ready, and what to do", func() bool {
				err := run.Ready()
				return err != nil && strings.Contains(err.Error(), "alter system set synchronous_standby_names")
			})
			eventually(t, "its stream is closed", func() bool { return r.walsender(t, conn) == 0 })
			r.commit(t, w, 3, user)
			db.Exec(t, `alter system set synchronous_standby_names = 'standby1'`, `select pg_reload_conf()`)
			eventually(t, "the auditor is ready again", func() bool { return run.Ready() == nil })
		}
		r.catchUp(t, conn)
		run.end(t)
	})
}
