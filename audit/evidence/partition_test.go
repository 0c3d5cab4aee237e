package evidence_test

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
)

// The hashes are those of Apache Kafka's own unit test of murmur2.
func TestThePartitionIsTheOneThatJavaChooses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  string
		hash int32
	}{
		{"21", -973932308},
		{"foobar", -790332482},
		{"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
		{"abc", 479470107},
		{"", 275646681},
	} {
		for _, partitions := range []int{1, 2, 3, 6, 12, 100, 1 << 20} {
			want := (c.hash & 0x7fffffff) % int32(partitions)
			if got := evidence.Partition([]byte(c.key), partitions); got != want {
				t.Errorf("key %q of %d partitions: %d, want %d", c.key, partitions, got, want)
			}
		}
	}
}

func TestThePartitionIsTheOneThatOtherClientsChoose(t *testing.T) {
	t.Parallel()
	franz := kgo.StickyKeyPartitioner(nil).ForTopic("topic")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
		n := rapid.IntRange(1, 64).Draw(t, "partitions")
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		got := int(evidence.Partition(key, n))
		if want := (kafkago.Murmur2Balancer{}).Balance(kafkago.Message{Key: key}, all...); got != want {
			t.Errorf("%d, kafka-go says %d", got, want)
		}
		if want := franz.Partition(&kgo.Record{Key: key}, n); got != want {
			t.Errorf("%d, franz-go says %d", got, want)
		}
	})
}
