package audit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit"
	"lapse/audit/kafka"
)

const unknownTopic = 3 // Kafka's error code

// deleteTopic deletes a topic, as somebody with the right to would.
func (r *rig) deleteTopic(t *testing.T, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.settings.Broker))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{topic}
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.Topics[0].ErrorCode; code != 0 {
		t.Fatalf("delete topic %s: error %d", topic, code)
	}
	eventually(t, "the topic is gone", func() bool {
		req := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, mt)
		resp, err := req.RequestWith(t.Context(), client)
		return err == nil && len(resp.Topics) == 1 && resp.Topics[0].ErrorCode == unknownTopic
	})
}

// A topic that is deleted and made again has lost what was in it, and nothing but offsets shows it.
func TestATopicThatIsDeletedAndMadeAgainIsAGap(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(200*time.Millisecond))
		for range 5 {
			r.commit(t, w, 3, user)
		}
		r.catchUp(t, w.conn)
		eventually(t, "a heartbeat is in the log after the events", func() bool {
			log := r.readLog(t)
			return len(log) > 0 && log[len(log)-1].Kind == "coverage"
		})
		r.deleteTopic(t, r.settings.User)
		if err := r.broker.CreateTopic(t.Context(), r.settings.User, partitions, nil); err != nil {
			t.Fatal(err)
		}
		if n := len(r.read(t, r.settings.User)); n != 0 {
			t.Fatalf("%d records are in the new topic", n)
		}
		eventually(t, "the auditor ends", func() bool {
			r.commit(t, w, 1, user)
			select {
			case <-run.done:
				return true
			default:
				return false
			}
		})
		if !errors.Is(run.err, kafka.ErrTopicReplaced) {
			t.Fatalf("it ended with %v", run.err)
		}
		run.err = nil
		r.once(t, r.beating(time.Minute))
		marked := map[int32]int{}
		for _, record := range r.read(t, r.settings.User) {
			if record.Header("lapse-op") == "gap" {
				marked[record.Partition]++
			}
		}
		for p := range int32(partitions) {
			if marked[p] != 1 {
				t.Errorf("partition %d has %d gaps, want 1", p, marked[p])
			}
		}
		metrics := audit.NewMetrics()
		r.once(t, r.beating(time.Minute), func(c *audit.Config) { c.Metrics = metrics })
		if n := gather(t, metrics)["lapse_gaps_total"]; n != 0 {
			t.Errorf("the next start writes %v gaps more", n)
		}
	})
}
