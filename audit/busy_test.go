package audit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit"
)

// A server that writes much that is not published asks for answers too. Its stream must live on, and its slot move.
func TestABusyServerIsNotTakenForOneThatStops(t *testing.T) {
	onSolo(t, false, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table unpublished (id bigint generated always as identity, t text)`)
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		walsender := func() (pid int) {
			err := conn.QueryRow(t.Context(), `select active_pid from pg_replication_slots where active`).Scan(&pid)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
		before := walsender()
		busy, finish := context.WithTimeout(t.Context(), 2*keptWaitingAtMost)
		defer finish()
		var writers sync.WaitGroup
		for range 3 {
			c := r.db.Connect(t)
			writers.Go(func() {
				for busy.Err() == nil {
					if _, err := c.Exec(t.Context(), `insert into unpublished (t) select 'x' from generate_series(1, 3)`); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		writers.Wait()
		if after := walsender(); after != before {
			t.Errorf("the stream was given up: walsender %d, then %d", before, after)
		}
		r.catchUp(t, conn)
	})
}

const keptWaitingAtMost = 3 * time.Second // as in replication/patience.go

func TestHeartbeatsAreWrittenAndConfirmed(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		beats := make(chan audit.Server, 10)
		run := r.start(t, func(c *audit.Config) {
			c.WriteHeartbeat = func(_ context.Context, _ uuid.UUID, place audit.Server) error {
				beats <- place
				return errors.New("and a heartbeat that fails stops nothing")
			}
		})
		select {
		case place := <-beats:
			if place.Timeline != 1 || place.History != 1 || place.ServerStart.IsZero() {
				t.Errorf("a heartbeat of %+v", place)
			}
		case <-time.After(patience):
			t.Fatal("no heartbeat")
		}
		r.catchUp(t, conn)
		run.end(t)
	})
}

func TestReadySaysThatKafkaDoesNotAnswer(t *testing.T) {
	onSolo(t, true, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		if err := r.broker.Kill(); err != nil {
			t.Fatal(err)
		}
		r.commit(t, w, 3, user)
		eventually(t, "the auditor says that Kafka does not answer", func() bool {
			err := run.Ready()
			return err != nil && strings.Contains(err.Error(), "Kafka has not answered")
		})
		r.startBroker(t)
		eventually(t, "the auditor is ready again", func() bool { return run.Ready() == nil })
		r.catchUp(t, w.conn)
	})
}

func TestMetricsCountWhatHappened(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 2, user)
		r.commit(t, w, 3, system)
		r.commit(t, w, 4, intruder)
		r.commit(t, w, 1, func([]int64) transaction { return emptier })
		m := audit.NewMetrics()
		r.once(t, func(c *audit.Config) { c.Metrics = m })
		want := map[string]float64{
			`lapse_events_published_total{cause="system",op="delete"}`:     3*3 + 3*3,
			`lapse_events_published_total{cause="user",op="delete"}`:       2 * 3,
			`lapse_events_published_total{cause="unverified",op="delete"}`: 1 + 3,
			`lapse_events_published_total{cause="user",op="truncate"}`:     partitions,
			`lapse_transactions_unverified_total`:                          1,
			`lapse_reconciliation_mismatches_total`:                        1,
			`lapse_events_deduplicated_total`:                              0,
			`lapse_audit_lag_seconds`:                                      0,
		}
		for name, value := range gather(t, m) {
			if wanted, ok := want[name]; ok && wanted != value {
				t.Errorf("%s is %v, want %v", name, value, wanted)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("not there: %v", want)
		}
	})
}
