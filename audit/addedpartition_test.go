package audit_test

import (
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/internal/pgserver"
)

// copyEvent puts a copy of the user topic's oldest event after what is in a partition.
func (r *rig) copyEvent(t *testing.T, partition int) {
	t.Helper()
	oldest := r.read(t, r.settings.User)[0]
	var headers []kafka.Header
	for _, h := range oldest.Headers {
		headers = append(headers, kafka.Header{Key: h.Name, Value: h.Value})
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.settings.Broker), Transport: transport}
	eventually(t, "the copy is there", func() bool {
		resp, err := client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: r.settings.User, Partition: partition, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Key: kafka.NewBytes(oldest.Key), Value: kafka.NewBytes(oldest.Value), Headers: headers}),
		})
		return err == nil && resp.Error == nil
	})
}

// The log's last heartbeat says nothing of partitions that a route brought which came into force after it.
func TestACopyOfAnOldEventInAnAddedPartitionDoublesNothing(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 5)
		r.db.Exec(t, beatNow)
		r.once(t)
		r.addPartitions(t, 5)
		r.settings.Chosen.Partitions = 5
		r.delete(t, want, w, 20)
		r.dies(t, firstRecord)
		if used := r.usedPartitions(t); len(used) != 5 {
			t.Fatalf("events are in the partitions %v", used)
		}
		for _, partition := range []int{3, 4} {
			r.copyEvent(t, partition)
		}
		r.once(t)
		seen := map[string]int{}
		for _, record := range r.read(t, r.settings.User) {
			seen[string(record.Value)]++
		}
		all, twice := 0, 0
		for _, n := range seen {
			all++
			if n > 1 {
				twice++
			}
		}
		if all != len(want.causes) || twice != 1 { // the one that was copied
			t.Errorf("%d events, %d of them more than once; want %d and 1", all, twice, len(want.causes))
		}
	})
}

// A rewind takes back what is in partitions that get no more rows too. The database is another one from the moment on at which there is
// another route.
func TestARewindIsInPartitionsThatGetNoMoreRows(t *testing.T) {
	bend(t, []int{18}, func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		copied := b.snapshot(t, pgserver.Frozen)
		b.work(t)
		b.run(t)
		b.settings.Chosen.Partitions = 2
		b.work(t)
		b.beat(t)
		b.run(t)
		b.restore(t, copied)
		b.delete(t, 2, user, stale)
		b.accept(t, b.isBent(t))
		b.settings.Chosen.Partitions = 1
		b.settled(t, "rewind accepted")
		if routes := b.logRoutes(t); len(routes) != 3 || routes[2].reach.History != 2 || routes[2].User.All() != partitions {
			t.Errorf("%d routes: %+v", len(routes), routes[len(routes)-1])
		}
	})
}
