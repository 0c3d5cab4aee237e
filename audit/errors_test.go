package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/schemas"
)

// A clone with the same configuration takes the topics over. Whoever was there before must not take them back: two that
// fence one another for ever both publish.
func TestAnAuditorThatIsFencedEndsAndDoesNotFenceBack(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.delete(t, want, w, 3)
		r.catchUp(t, w.conn)

		var system, database int64
		if err := w.conn.QueryRow(t.Context(), `select system_identifier, oid::int8 from pg_control_system(), pg_database
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
		defer func() { _ = intruder.Close(t.Context()) }()

		r.delete(t, want, w, 3)
		select {
		case <-run.done:
		case <-time.After(patience):
			t.Fatal("the fenced auditor goes on")
		}
		if !errors.Is(run.err, kafka.ErrFenced) {
			t.Errorf("it ended with %v, want ErrFenced", run.err)
		}
		run.err = nil // it is what this test wants
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
