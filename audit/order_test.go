package audit_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// onHeavyFake runs a test with a broker that refuses to take records for a topic when it is told to.
func onHeavyFake(t *testing.T, test func(t *testing.T, r *rig, cluster *kfake.Cluster)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		cluster := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := newRigAt(t, db, cluster.ListenAddrs()[0])
		r.settings.Compression = kafka.None // faults look into requests
		test(t, r, cluster)
	})
}

// hold has the broker refuse records for a topic until the handle is removed.
func hold(cluster *kfake.Cluster, topic string) *kfake.FaultHandle {
	return cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1,
	})
}

// count is how many records of a kind (a lapse-op) a topic has.
func (r *rig) count(t *testing.T, topic, op string) (n int) {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{r.settings.Broker}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, err := client.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, o := range offsets {
		err := client.ReadPartition(t.Context(), topic, int32(p), o.First, o.End, func(rec *schemas.Record, _ int64) error {
			for _, h := range rec.Headers {
				if h.Key == "lapse-op" && string(h.Value) == op {
					n++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (r *rig) commit(t *testing.T, w *writer, rows int, kind func([]int64) transaction) {
	t.Helper()
	ids, err := w.rows(t.Context(), rows)
	if err == nil {
		err = w.commit(t.Context(), newExpected(), kind(ids))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func system(ids []int64) transaction { return batch(ids, nil) }

func TestTheLogHasATransactionOnlyWhenItsEventsAreInTheirTopics(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })

		before := walEnd(t, w.conn)
		held := hold(cluster, r.settings.User)
		r.commit(t, w, 3, user)
		r.commit(t, w, 2, system)
		eventually(t, "the second transaction's events are in their topic, and the first one's were refused often",
			func() bool { return r.count(t, r.settings.System, "delete") == 6 && held.Hits() >= 20 })
		if n := r.count(t, r.settings.Log, "transaction"); n != 0 {
			t.Errorf("%d transactions are in the log, and no event of the first is in its topic", n)
		}
		if at := r.confirmed(t, w.conn); at > before {
			t.Errorf("the slot is at %s, above %s, and nothing above is in the log", at, before)
		}

		held.Remove()
		r.catchUp(t, w.conn)
		if n := r.count(t, r.settings.Log, "transaction"); n != 2 {
			t.Errorf("%d transactions are in the log, want 2", n)
		}
	})
}

func TestTheSlotMovesOnlyWhenTheLogHas(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })

		held := hold(cluster, r.settings.Log)
		before := walEnd(t, w.conn)
		r.commit(t, w, 3, user)
		r.commit(t, w, 2, system)
		eventually(t, "the events are in their topics, and the log's records were refused often", func() bool {
			return r.count(t, r.settings.System, "delete") == 6 && r.count(t, r.settings.User, "delete") == 9 && held.Hits() >= 20
		})
		if at := r.confirmed(t, w.conn); at > before {
			t.Errorf("the slot is at %s, above %s, and the log does not", at, before)
		}

		held.Remove()
		r.catchUp(t, w.conn)
	})
}

func TestNoEventIsPublishedBeforeTheLogHasItsBeginning(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 3, user)
		held := cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: has(`{"kind":"origin"`),
		})
		r.start(t)
		eventually(t, "the log's first record was refused often", func() bool { return held.Hits() >= 20 })
		if n := r.count(t, r.settings.User, "delete"); n != 0 {
			t.Errorf("%d events are in a topic whose log is empty", n)
		}
		held.Remove()
		eventually(t, "the events are there", func() bool { return r.count(t, r.settings.User, "delete") == 9 })
	})
}

// has picks requests with a text that no fence has.
func has(text string) func(kmsg.Request) bool {
	return func(request kmsg.Request) bool {
		produce, ok := request.(*kmsg.ProduceRequest)
		if !ok {
			return false
		}
		for _, topic := range produce.Topics {
			for _, partition := range topic.Partitions {
				if bytes.Contains(partition.Records, []byte(text)) {
					return true
				}
			}
		}
		return false
	}
}

func TestNoEventIsPublishedByARouteThatTheLogDoesNotHave(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 3, user)
		r.once(t)
		r.commit(t, w, 3, user)
		held := cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: has(`{"kind":"route"`),
		})
		r.settings.Chosen.Format = evidence.FormatDebezium
		r.start(t)
		eventually(t, "the route was refused often", func() bool { return held.Hits() >= 20 })
		if n := r.count(t, r.settings.User, "delete"); n != 9 {
			t.Errorf("%d events, want the 9 of the route that the log has", n)
		}
		held.Remove()
		eventually(t, "the events are there", func() bool { return r.count(t, r.settings.User, "delete") == 18 })
	})
}

func TestWhoWaitsForACoverageRecordDoesNotWaitForThePeriodicOne(t *testing.T) {
	t.Parallel()
	// On a server of its own: on another the end of the WAL may be that of other tests, for which nobody waits.
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		conn := r.db.Connect(t)
		a := r.auditor(t)
		a.CoverEvery(time.Hour)
		run := r.startWith(t, a)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		for _, statement := range []string{
			`insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec) values (1, 1, 'p', 1, 't', '[]', '{}')`,
			`insert into lapse.policy_state (policy_id, version, state) values (1, 1, 'arming')`,
			beatNow,
		} {
			r.db.Exec(t, statement)
			end := walEnd(t, conn)
			eventually(t, "the slot is confirmed after "+statement, func() bool { return r.confirmed(t, conn) >= end })
		}
		run.end(t)
		r.verify(t, newExpected())
	})
}
