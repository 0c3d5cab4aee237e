package audit_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"lapse/audit/kafka"
	"lapse/audit/tree"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// The same WAL is read twice, from a slot and from a copy of it, into two clusters: once in one go, once by auditors that
// are killed in between, over a bad network, with a small buffer. What is in the topics is the same to the byte; so is the
// log, but for its coverage records, which are made when somebody waits for them, and say when.
func TestTheSameWALGivesTheSameBytesWheneverItIsRead(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		copied := r.settings.Slot + "_again"
		r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, copied))
		r.makeKept(t)
		drawn := &load{rig: r, want: newExpected(), random: rand.New(rand.NewPCG(uint64(seed), 1))}
		w := &writer{conn: r.db.Connect(t)}
		for range 60 {
			if drawn.transact(t.Context(), w); drawn.err != nil {
				t.Fatal(drawn.err)
			}
		}
		r.once(t)
		first := dump(t, r.settings)

		r.db.Exec(t, fmt.Sprintf(`select pg_drop_replication_slot('%s')`, r.settings.Slot),
			fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, copied, r.settings.Slot))
		again := *r
		again.settings.Broker = kafkatest.Fake(t, kfake.NumBrokers(1)).ListenAddrs()[0]
		again.settings.MaxBuffered, again.settings.Network = 8<<10, seed
		for range 2 {
			child := startChild(t, again.settings)
			eventually(t, "there is something", func() bool { return again.some(t) })
			child.kill()
		}
		again.settings.Network = 0
		again.once(t)
		second := dump(t, again.settings)

		records := 0
		for place, want := range first {
			got := second[place]
			records += len(want)
			if !slices.EqualFunc(want, got, bytes.Equal) {
				at := 0
				for at < min(len(want), len(got)) && bytes.Equal(want[at], got[at]) {
					at++
				}
				t.Errorf("%s has %d records, and %d when it is read again; from number %d on they differ:\n%s\n%s", place, len(want), len(got), at,
					slices.Concat(want[at:min(at+1, len(want))]...), slices.Concat(got[at:min(at+1, len(got))]...))
			}
		}
		if len(second) != len(first) || records < 100 {
			t.Errorf("%d partitions with %d records, and %d partitions", len(first), records, len(second))
		}
		t.Logf("%d records", records)
	})
}

// some says whether there are events.
func (r *rig) some(t *testing.T) bool {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{r.settings.Broker}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, err := client.Offsets(t.Context(), r.settings.User)
	return err == nil && slices.ContainsFunc(offsets, func(o kafka.Offsets) bool { return o.End > 5 })
}

// asBytes is all that a record has, with the time as a broker keeps it.
func asBytes(rec *schemas.Record) []byte {
	return fmt.Appendf(nil, "%q %q %q %d", rec.Key, rec.Value, rec.Headers, rec.Time.UnixMilli())
}

// dump is each record as bytes, by topic and partition, without fences and what the log says of its coverage, and without a record's place
// in the log's tree, which has the coverage in it.
func dump(t *testing.T, s settings) map[string][][]byte {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{s.Broker}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := map[string][][]byte{}
	for _, topic := range []string{s.System, s.User, s.Log} {
		offsets, err := client.Offsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for partition, o := range offsets {
			place := fmt.Sprintf("%s/%d", topic, partition)
			err := client.ReadPartition(t.Context(), topic, int32(partition), o.First, o.End, func(rec *schemas.Record, _ int64) error {
				switch rec.Header(schemas.HeaderOp) {
				case schemas.OpFence, "coverage":
					return nil
				case "origin", "route": // made when the log began, whose time is no commit's
					rec.Time = time.Time{}
				}
				rec.Headers = slices.DeleteFunc(rec.Headers, func(h schemas.Header) bool { return h.Key == tree.HeaderLeaf || h.Key == tree.HeaderLink })
				all[place] = append(all[place], asBytes(rec))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}
