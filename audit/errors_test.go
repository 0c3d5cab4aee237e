package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// A clone with the same configuration takes the topics over. The first auditor must not take them back: two that fence
// each other forever both publish.
func TestAnAuditorThatIsFencedEndsAndDoesNotFenceBack(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.delete(t, want, w, 3)
		r.catchUp(t, w.conn)

		intruder := r.intrude(t, w.conn)
		r.delete(t, want, w, 3)
		run.endsFenced(t)
		for partition := range int32(partitions) {
			if _, ok := intruder.Append(schemas.Record{
				Topic: r.settings.User, Partition: partition, Time: time.Now(),
			}); !ok {
				t.Fatal(intruder.Err())
			}
		}
		eventually(t, "the other one publishes", func() bool {
			return intruder.Acked() == partitions || intruder.Err() != nil
		})
		if err := intruder.Err(); err != nil {
			t.Errorf("the other one was fenced back: %v", err)
		}
	})
}

// Its stream breaks while another auditor takes over, and the answer that says so is still to come: it is waited for before
// anybody takes the slot again.
func TestAnAuditorThatIsFencedWhileItsStreamBreaksEnds(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w, net := newExpected(), &writer{conn: r.db.Connect(t)}, kafkatest.NewNetwork(nil)
		log := &testLog{t: t}
		run := r.start(t, func(c *audit.Config) {
			c.Kafka.Dial, c.Logger = net.Dial, slog.New(slog.NewTextHandler(log, nil))
		})
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		net.From(kafkatest.Always(kafkatest.Hold))
		r.delete(t, want, w, 3)
		<-net.Held()
		r.intrude(t, w.conn)
		r.cutStream(t)
		eventually(t, "it has noticed that its stream broke", func() bool { return strings.Contains(log.String(), "starting over") })
		net.Let()
		run.endsFenced(t)
	})
}

// endsFenced wants the auditor to end because another has taken over.
func (run *running) endsFenced(t *testing.T) {
	t.Helper()
	select {
	case <-run.done:
	case <-time.After(patience):
		t.Fatal("the fenced auditor goes on")
	}
	if !errors.Is(run.err, kafka.ErrFenced) {
		t.Errorf("it ended with %v, want ErrFenced", run.err)
	}
	run.err = nil // it is what the test wants
}

// intrude takes the topics over, as another auditor with the same configuration does.
func (r *rig) intrude(t *testing.T, conn *pgx.Conn) *kafka.Publisher {
	t.Helper()
	var system, database int64
	if err := conn.QueryRow(t.Context(), `select system_identifier, oid::int8 from pg_control_system(), pg_database
		where datname = current_database()`).Scan(&system, &database); err != nil {
		t.Fatal(err)
	}
	intruder, err := kafka.Open(t.Context(), kafka.Config{
		Brokers:         []string{r.settings.Broker},
		TransactionalID: fmt.Sprintf("lapse-%d-%d-%s", uint64(system), database, r.settings.Slot),
		Topics:          []kafka.Topic{{Name: r.settings.System}, {Name: r.settings.User}, {Name: r.settings.Log}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = intruder.Close(context.WithoutCancel(t.Context())) })
	return intruder
}
