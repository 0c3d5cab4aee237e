package audit_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"lapse/audit"
	"lapse/schemas"
)

var otherKey = schemas.Key(slices.Repeat([]byte{8}, schemas.MinKey))

// foreign deletes as an executor with another tag key does.
func foreign(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		claim, err := claimOf(ctx, tx)
		if err != nil {
			return outcome{}, err
		}
		o := outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}
		if err := writeClaim(ctx, tx, &claim, claim.MAC(otherKey)); err != nil {
			return o, err
		}
		if _, err := tx.Exec(ctx, deleteSessions, ids); err != nil {
			return o, err
		}
		return o, writeResult(ctx, tx, &claim, int64(len(ids)), int64(2*len(ids)))
	}
}

// alarms counts alarms. It calls lapse.alarm as the auditor's role, unless it is to fail.
type alarms struct {
	url string

	mu      sync.Mutex
	failing error
	reasons []string
}

func (a *alarms) raise(ctx context.Context, reason string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reasons = append(a.reasons, reason)
	if a.failing != nil {
		return a.failing
	}
	conn, err := pgx.Connect(ctx, a.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `select lapse.alarm($1)`, reason)
	return errors.Join(err, conn.Close(ctx))
}

func (a *alarms) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failing = err
}

func (a *alarms) raised() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.reasons)
}

// halted are the reasons in lapse.halt.
func halted(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `select reason from lapse.halt where halted order by id`)
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return reasons
}

func TestAnUnverifiedBatchOfTheFunctionsStopsDeletionAndARowByHandDoesNot(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		alarms := &alarms{url: r.db.As("lapse_auditor")}
		metrics, log := audit.NewMetrics(), &testLog{t: t}
		config := func(c *audit.Config) {
			c.OnAlarm(alarms.raise)
			c.Metrics, c.Logger = metrics, slog.New(slog.NewTextHandler(log, nil))
		}
		commit := func(kind func([]int64) transaction) {
			t.Helper()
			ids, err := w.rows(t.Context(), 2)
			if err == nil {
				err = w.commit(t.Context(), want, kind(ids))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		commit(system)
		commit(user)
		commit(byHand)
		r.once(t, config)
		if got := halted(t, w.conn); len(got)+len(alarms.raised()) > 0 {
			t.Errorf("without a reason: %q", got)
		}
		commit(foreign)
		commit(foreign)
		r.once(t, config)
		batch := lastBatches(t, w.conn, 2)
		reasons := halted(t, w.conn)
		if len(reasons) != 1 || !strings.Contains(reasons[0], batch[0]) || !strings.Contains(reasons[0], "tag") ||
			!strings.HasSuffix(reasons[0], "change its password") {
			t.Errorf("halted for %q, want one reason that names batch %s and ends whole", reasons, batch[0])
		}
		if n := gather(t, metrics)["lapse_own_batches_unverified_total"]; n != 2 {
			t.Errorf("%v transactions are counted, want 2", n)
		}
		for _, b := range batch {
			if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, b) {
				t.Errorf("the log does not name batch %s as an error", b)
			}
		}
		r.verify(t, want)
	})
}

// byHand is a superuser's ledger row that no function wrote.
func byHand(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		claim, err := claimOf(ctx, tx)
		if err == nil {
			err = writeClaim(ctx, tx, &claim, make([]byte, 32))
		}
		if err == nil {
			_, err = tx.Exec(ctx, deleteSessions, ids)
		}
		return outcome{causes: causesOf(ids, "unverified"), verdict: "unclaimed"}, err
	}
}

// lastBatches are the newest n batches of the ledger, in order.
func lastBatches(t *testing.T, conn *pgx.Conn, n int) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select batch from (select batch::text, xid from lapse.batch order by xid::text::bigint desc limit $1) b
		 order by xid::text::bigint`, n)
	if err != nil {
		t.Fatal(err)
	}
	batches, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return batches
}

// An alarm that fails blocks the record and everything after it: the auditor says so and tries again.
func TestNothingIsRecordedBeforeTheAlarmHasSucceeded(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, _ *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		alarms := &alarms{url: r.db.As("lapse_auditor"), failing: errors.New("the database does not answer")}
		run := r.start(t, func(c *audit.Config) { c.OnAlarm(alarms.raise) })
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		before := walEnd(t, w.conn)
		r.commit(t, w, 2, foreign)
		r.commit(t, w, 1, system)
		eventually(t, "the alarm is tried again", func() bool { return len(alarms.raised()) >= 3 })
		eventually(t, "the auditor says why it does not go on", func() bool {
			err := run.Ready()
			return err != nil && strings.Contains(err.Error(), lastBatches(t, w.conn, 2)[0])
		})
		if n := r.count(t, r.settings.Log, "transaction"); n != 0 {
			t.Errorf("%d transactions are in the log", n)
		}
		if at := r.confirmed(t, w.conn); at > before {
			t.Errorf("the slot is at %s, above %s", at, before)
		}
		alarms.fail(nil)
		r.catchUp(t, w.conn)
		if n := r.count(t, r.settings.Log, "transaction"); n != 2 {
			t.Errorf("%d transactions are in the log, want 2", n)
		}
		if system, user := r.count(t, r.settings.System, "delete"), r.count(t, r.settings.User, "delete"); system != 3 || user != 6 {
			t.Errorf("%d and %d events, want 3 of the system and 6 unverified", system, user)
		}
		if got := halted(t, w.conn); len(got) != 1 {
			t.Errorf("halted for %q, want one reason", got)
		}
	})
}

// A crash between alarm and record has the next auditor raise it again.
func TestAnAuditorThatDiesBeforeTheRecordIsInTheLogRaisesTheAlarmAgain(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		alarms := &alarms{url: r.db.As("lapse_auditor")}
		run := r.start(t, func(c *audit.Config) { c.OnAlarm(alarms.raise) })
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		held := hold(cluster, r.settings.Log)
		r.commit(t, w, 2, foreign)
		eventually(t, "deletion is stopped although the log takes nothing", func() bool {
			return len(halted(t, w.conn)) == 1 && held.Hits() > 0
		})
		run.end(t)
		held.Remove()
		again := r.start(t, func(c *audit.Config) { c.OnAlarm(alarms.raise) })
		eventually(t, "the auditor is ready", func() bool { return again.Ready() == nil })
		r.catchUp(t, w.conn)
		if n := len(alarms.raised()); n != 2 {
			t.Errorf("the alarm was raised %d times, want once by each auditor", n)
		}
		if got := halted(t, w.conn); len(got) != 1 {
			t.Errorf("halted for %q, want one reason", got)
		}
	})
}

// A slow database does not cost the stream: it is answered while the alarm is under way.
func TestTheServerIsAnsweredWhileTheAlarmIsUnderWay(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, _ *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		called, release := make(chan struct{}, 10), make(chan struct{})
		run := r.start(t, func(c *audit.Config) {
			c.Stream.StatusInterval = 50 * time.Millisecond
			c.OnAlarm(func(ctx context.Context, _ string) error {
				called <- struct{}{}
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.commit(t, w, 2, foreign)
		<-called
		answered := func() (at float64) {
			err := w.conn.QueryRow(t.Context(), `
				select coalesce(extract(epoch from max(reply_time))::float8, 0) from pg_stat_replication where pid = (select active_pid from pg_replication_slots where slot_name = $1)`,
				r.settings.Slot).Scan(&at)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		first := answered()
		eventually(t, "the server is answered", func() bool { return answered() > first })
		close(release)
		r.catchUp(t, w.conn)
		if len(called) > 0 {
			t.Error("the alarm was broken off and raised again")
		}
	})
}
