package audit_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/replication"
)

func TestACloneByTemplateIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		b := newBender(t, newRig(t, db, kafkatest.Broker(t)))
		b.beat(t)
		b.work(t)
		b.run(t)
		other, admin := *db, *db
		other.Name, admin.Name = db.Name+"_clone", "postgres"
		other.URL, admin.URL = db.Server.URL("postgres", other.Name), db.Server.URL("postgres", "postgres")
		conn := admin.Connect(t)
		eventually(t, "nobody is connected, and the database is cloned", func() bool {
			_, err1 := conn.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, db.Name)
			_, err2 := conn.Exec(t.Context(), fmt.Sprintf(`create database %s template %s`, other.Name, db.Name))
			return err1 == nil && err2 == nil
		})
		b.w.conn = db.Connect(t)
		conn = other.Connect(t)
		slot := other.Name
		start, err := replication.CreateSlot(t.Context(), conn, slot)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := replication.DropSlot(context.WithoutCancel(t.Context()), conn, slot); err != nil {
				t.Error(err)
			}
			_ = conn.Close(context.WithoutCancel(t.Context()))
			admin.Exec(t, `drop database `+other.Name+` with (force)`)
		}()

		records := b.records(t)
		clone := &rig{db: &other, broker: b.broker, settings: b.settings}
		clone.settings.URL = other.URL
		if err := clone.tryOnce(t, hasty); err == nil || !strings.Contains(err.Error(), db.Name) {
			t.Errorf("the slot of another database was read: %v", err)
		}
		clone.settings.Slot, clone.settings.SlotStart = slot, start
		clone.refused(t, history.ErrForeignTopic, hasty)
		if n := b.records(t); n != records {
			t.Errorf("%d records were written by the clone", n-records)
		}
		b.settled(t)
	})
}

// mute lets an auditor write heartbeats when it may.
func (b *bender) mute(t *testing.T, loud *atomic.Bool, change func(*audit.Config)) func(*audit.Config) {
	t.Helper()
	return func(c *audit.Config) {
		change(c)
		beat := c.Beat()
		c.OnBeat(func(ctx context.Context, nonce uuid.UUID, place audit.Server) error {
			if !loud.Load() {
				return nil
			}
			return beat(ctx, nonce, place)
		})
	}
}

func TestACloneBesideTheRunningOriginalSeesTheLogGrow(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		var loud atomic.Bool
		loud.Store(true) // until it is ready: an auditor that cannot write a heartbeat is not
		original := b.start(t, b.mute(t, &loud, b.beating(50*time.Millisecond)))
		eventually(t, "the original is ready", func() bool { return original.Ready() == nil })
		loud.Store(false)
		b.beat(t)
		b.work(t)
		b.catchUp(t, b.w.conn)

		clone := &bender{rig: &rig{broker: b.broker, settings: b.settings}, truth: b.truth, w: &writer{next: 1000}}
		clone.truth.lives = map[string]int{}
		clone.moveTo(t, b.db.Clone(t, b.db.Snapshot(t, pgserver.Frozen)))
		clone.work(t)
		confirmed, fences := clone.confirmed(t, clone.w.conn), b.fences(t)
		watching := clone.start(t, func(c *audit.Config) { c.HeartbeatEvery = 5 * time.Second })
		says := func(text string) func() bool {
			return func() bool {
				err := watching.Ready()
				return err != nil && strings.Contains(err.Error(), text)
			}
		}
		eventually(t, "the clone watches", says("watching"))
		loud.Store(true)
		b.work(t)
		eventually(t, "the clone sees the other auditor", says(history.ErrOtherAuditor.Error()))
		eventually(t, "the clone sees, some time later, that it is another past", says("another past"))
		watching.end(t)
		if at := clone.confirmed(t, clone.w.conn); at != confirmed {
			t.Errorf("the clone's slot has moved from %s to %s", confirmed, at)
		}
		if n := b.fences(t); n != fences {
			t.Errorf("%d fences were written by the clone", n-fences)
		}
		// Not at once: of heartbeats 50 ms apart a busy machine may be late with one.
		eventually(t, "the original is not disturbed", func() bool { return original.Ready() == nil })
		b.work(t)
		end := walEnd(t, b.w.conn)
		eventually(t, "the original has confirmed all", func() bool { return b.confirmed(t, b.w.conn) >= end })
		original.end(t)
		b.holds(t)
	})
}

// fences counts them in all topics.
func (r *rig) fences(t *testing.T) (n int) {
	t.Helper()
	for _, topic := range []string{r.settings.System, r.settings.User} { // the log has more, which say where these end
		n += r.count(t, topic, "fence")
	}
	return n
}
