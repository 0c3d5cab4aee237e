package audit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/internal/fixture"
	"lapse/schemas"
)

// A server that writes much that is not published asks for answers too. Its stream must live on, and its slot move.
func TestABusyServerIsNotTakenForOneThatStops(t *testing.T) {
	onHeavySolo(t, false, func(t *testing.T, r *rig) {
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

func TestHeartbeatsAreWrittenReadBackAndConfirmed(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		run := r.start(t, r.beating(200*time.Millisecond))
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		end := walEnd(t, conn)
		eventually(t, "three heartbeats are in the log", func() bool { return len(r.loggedHeartbeats(t)) >= 3 })
		eventually(t, "the slot is confirmed by heartbeats alone", func() bool { return r.confirmed(t, conn) >= end })
		run.end(t)
		logged := r.loggedHeartbeats(t)
		written := fixture.One[[]string](t, conn, `select array_agg(nonce::text order by id) from lapse.heartbeat`)
		for i, nonce := range written[:len(written)-1] { // the last one may have been written while the auditor stopped
			if !logged[nonce] {
				t.Errorf("heartbeat %d of %d is not in the log", i+1, len(written))
			}
		}
	})
}

// loggedHeartbeats are the nonces of the heartbeats in the log.
func (r *rig) loggedHeartbeats(t *testing.T) map[string]bool {
	t.Helper()
	logged := map[string]bool{}
	for _, record := range r.read(t, r.settings.Log) {
		entry, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		if entry.Heartbeat != nil {
			logged[entry.Heartbeat.Nonce.String()] = true
		}
	}
	return logged
}

func TestAHeartbeatThatCannotBeWrittenStopsNothingAndIsReported(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		tries := make(chan audit.Server, 100)
		run := r.start(t, func(c *audit.Config) {
			c.HeartbeatEvery = 200 * time.Millisecond
			c.OnBeat(func(_ context.Context, _ uuid.UUID, server audit.Server) error {
				select {
				case tries <- server:
				default:
				}
				return errors.New("no connection")
			})
		})
		select {
		case server := <-tries:
			if server.Timeline != 1 || server.History != 1 || server.ServerStart.IsZero() {
				t.Errorf("a heartbeat of %+v", server)
			}
		case <-time.After(patience):
			t.Fatal("no heartbeat")
		}
		eventually(t, "the auditor says that no heartbeat can be written", func() bool {
			err := run.Ready()
			return err != nil && strings.Contains(err.Error(), "heartbeats could not be written")
		})
		r.delete(t, want, w, 3)
		r.catchUp(t, w.conn)
		run.end(t)
		r.verify(t, want)
	})
}

// Heartbeats say that an auditor is alive, and others stand by for it.
func TestNoHeartbeatIsWrittenAfterAStartThatFailed(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		var a *audit.Auditor
		failed, again, beats := false, false, false
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a = r.auditor(t, func(c *audit.Config) {
			c.OnEnd(func(context.Context) (schemas.LSN, error) {
				failed = true
				return 0, io.ErrUnexpectedEOF // the connection broke
			})
			c.Stream.Admit = func(context.Context, *pgconn.PgConn) error {
				if failed {
					again, beats = true, a.Beats()
					cancel()
				}
				return nil
			}
		})
		if err := a.Run(ctx); err != nil || !again || beats {
			t.Errorf("tried again %v, %v; it writes heartbeats meanwhile: %v", again, err, beats)
		}
	})
}

func TestReadySaysThatKafkaDoesNotAnswer(t *testing.T) {
	onHeavySolo(t, true, func(t *testing.T, r *rig) {
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
	onHeavy(t, func(t *testing.T, r *rig) {
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
