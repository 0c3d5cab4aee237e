package kafka_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// shown is what a tail has: value@offset of each.
func shown(tail []kafka.Stored) []string {
	all := []string{}
	for _, s := range tail {
		all = append(all, fmt.Sprintf("%s@%d", s.Record.Value, s.Offset))
	}
	return all
}

// A tail of several records, whatever lies between them.
func TestTheTailIsAsManyOfTheNewestRecordsAsAreWanted(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	cfg.Ours = isNumber
	for n := range 5 { // a fence at 0, 0 at 1, foreign at 2 and 3, a fence at 4, 1 at 5 …
		s := newSource(topic, 1, n+1)
		s.publishAll(t, cfg)
		flood(t, broker.Addr(), topic, 2, "hello")
	}
	for wanted, want := range map[int]string{
		0:    "[4@17]",
		1:    "[4@17]",
		2:    "[3@13 4@17]",
		3:    "[2@9 3@13 4@17]",
		5:    "[0@1 1@5 2@9 3@13 4@17]",
		6:    "[0@1 1@5 2@9 3@13 4@17]", // there are no more
		1000: "[0@1 1@5 2@9 3@13 4@17]",
	} {
		cfg.Topics[0].Tail = wanted
		p := open(t, cfg)
		if got := fmt.Sprint(shown(p.Last(topic, 0))); got != want {
			t.Errorf("%d wanted: %s, want %s", wanted, got, want)
		}
		for _, s := range p.Last(topic, 0) {
			if s.Record.Topic != topic || s.Record.Partition != 0 || s.Record.Time.IsZero() || len(s.Record.Headers) != 1 {
				t.Errorf("%d wanted: incomplete record %+v", wanted, s.Record)
			}
		}
		closePublisher(t, p)
	}
	deleteRecords(t, broker.Addr(), topic, 10) // retention leaves 3 and 4
	cfg.Topics[0].Tail = 4
	if got := fmt.Sprint(shown(open(t, cfg).Last(topic, 0))); got != "[3@13 4@17]" {
		t.Errorf("after retention: %s", got)
	}
}

// Windows and batches end anywhere within the tail.
func TestATailOfManyRecordsIsInOrderAndComplete(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 2)
	cfg := config(broker, topic)
	cfg.MaxBatchBytes = 700 // about ten records each
	s := newSource(topic, 2, 1000)
	s.publishAll(t, cfg)
	client := newClient(t, cfg)
	for partition := range int32(2) {
		all := []string{}
		for n := range s.total {
			if s.partition(n) == partition {
				all = append(all, strconv.Itoa(n))
			}
		}
		for _, wanted := range []int{1, 2, 7, 64, 85, 86, len(all) - 1, len(all), len(all) + 1} {
			tail, foreign, err := client.Tail(t.Context(), topic, partition, -1, nil, wanted)
			got := []string{}
			for _, s := range tail {
				got = append(got, string(s.Record.Value))
			}
			if want := all[max(0, len(all)-wanted):]; err != nil || foreign != 0 || !slices.Equal(got, want) {
				t.Errorf("partition %d, %d wanted: %s, %d foreign, %v", partition, wanted, got, foreign, err)
			}
		}
	}
}

func TestATailIsBoundedByItsBytesButForTheNewestRecord(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, c := range map[string]struct {
		sizes []int // in hundredths of the bound
		want  int   // records
	}{
		"all fit":                        {[]int{20, 20, 20}, 3},
		"three of four fit":              {[]int{30, 30, 30, 30}, 3},
		"the newest is as good as all":   {[]int{1, 1, 80, 60}, 1},
		"a large one ends the tail":      {[]int{1, 1, 70, 1, 60}, 2},
		"and what is older is left away": {[]int{1, 85, 1, 1, 1, 30}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			cfg := config(broker, topic)
			cfg.Topics[0].Tail = 100
			s := newSource(topic, 1, 1)
			p := open(t, cfg)
			for _, size := range c.sizes {
				rec := s.record(0)
				rec.Value = make([]byte, size*kafka.TailBytes/100)
				waitAcked(t, p, mustAppend(t, p, rec))
			}
			closePublisher(t, p)
			tail := open(t, cfg).Last(topic, 0)
			for i, stored := range tail {
				if size := c.sizes[len(c.sizes)-len(tail)+i] * kafka.TailBytes / 100; len(stored.Record.Value) != size {
					t.Errorf("record %d of the tail has %d bytes, want %d", i, len(stored.Record.Value), size)
				}
			}
			if len(tail) != c.want {
				t.Errorf("%d records, want %d", len(tail), c.want)
			}
		})
	}
}

// The newest record is the tail even if it takes more memory than a tail may.
func TestTheNewestRecordIsTheTailWhateverItsSize(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"max.message.bytes": "4000000"}); err != nil {
		t.Fatal(err)
	}
	cfg := config(broker, topic)
	cfg.MaxBatchBytes, cfg.Topics[0].Tail = 3_000_000, 10
	s := newSource(topic, 1, 1)
	p := open(t, cfg)
	for _, size := range []int{10, 2 * kafka.TailBytes} {
		rec := s.record(0)
		rec.Value = make([]byte, size)
		waitAcked(t, p, mustAppend(t, p, rec))
	}
	closePublisher(t, p)
	if tail := open(t, cfg).Last(topic, 0); len(tail) != 1 || len(tail[0].Record.Value) != 2*kafka.TailBytes {
		t.Errorf("%d records", len(tail))
	}
}

func TestTheTailIsWhatTheTopicHadWhenThePublisherWasOpened(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	cfg.Topics[0].Tail = 10
	s := newSource(topic, 1, 3)
	s.publishAll(t, cfg)
	p := open(t, cfg)
	waitAcked(t, p, mustAppend(t, p, s.record(0)))
	if got := fmt.Sprint(shown(p.Last(topic, 0))); got != "[0@1 1@2 2@3]" {
		t.Errorf("%s", got)
	}
}

// A broker's cleaner leaves batches with gaps, and headers of batches without any record.
func TestTheTailReachesOverWhatABrokerHasCompacted(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{Settings: map[string]string{"log.cleaner.backoff.ms": "50"}})
	topic := kafkatest.Name()
	settings := map[string]string{"segment.ms": "1", "min.cleanable.dirty.ratio": "0"} // each batch begins a segment
	if err := broker.CreateTopic(t.Context(), topic, 1, settings); err != nil {
		t.Fatal(err)
	}
	cfg := config(broker, topic)
	p := open(t, cfg)
	for n := range 60 {
		rec := schemas.Record{Topic: topic, Key: []byte(strconv.Itoa(n)), Value: []byte(strconv.Itoa(n)), Time: time.Now()}
		if n%3 == 0 {
			rec.Key = []byte("the same")
		}
		number := mustAppend(t, p, rec)
		if n%4 == 3 { // batches of up to four records
			waitAcked(t, p, number)
		}
	}
	closePublisher(t, p)
	for range 5 {
		closePublisher(t, open(t, cfg)) // compaction leaves the last fence
	}
	alter(t, broker.Addr(), topic, "cleanup.policy", "compact")
	waitFor(t, "compaction", func() bool { return len(kafkatest.ReadAllOn(t, broker, topic)) <= 45 })
	alter(t, broker.Addr(), topic, "cleanup.policy", "delete") // a publisher refuses a compacted topic

	var left []string
	for n := range 60 {
		if n%3 != 0 || n == 57 { // the newest of its key
			left = append(left, fmt.Sprintf("%d@%d", n, n+1))
		}
	}
	for _, wanted := range []int{1, 2, 3, 6, 20, len(left), len(left) + 1} {
		cfg.Topics[0].Tail = wanted
		tail := shown(open(t, cfg).Last(topic, 0))
		if want := left[max(0, len(left)-wanted):]; !slices.Equal(tail, want) {
			t.Errorf("%d wanted: %s, want %s", wanted, tail, want)
		}
	}
}
