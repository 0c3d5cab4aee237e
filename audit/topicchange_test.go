package audit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit/kafka"
)

// Events that were acknowledged are gone with the topic. To go on as if nothing had happened would be to say that all is
// well.
func TestATopicThatIsDeletedAndMadeAgainEndsTheAuditor(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.delete(t, want, w, 100)
		r.catchUp(t, w.conn)

		client, err := kgo.NewClient(kgo.SeedBrokers(r.settings.Broker))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		req := kmsg.NewPtrDeleteTopicsRequest()
		doomed := kmsg.NewDeleteTopicsRequestTopic()
		doomed.Topic = &r.settings.User
		req.TopicNames, req.Topics = []string{r.settings.User}, append(req.Topics, doomed)
		resp, err := req.RequestWith(t.Context(), client)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err == nil {
			err = r.broker.CreateTopic(t.Context(), r.settings.User, partitions, nil)
		}
		if err != nil {
			t.Fatal(err)
		}

		r.delete(t, want, w, 3)
		select {
		case <-run.done:
		case <-time.After(patience):
			t.Fatalf("the auditor goes on, ready: %v", run.Ready())
		}
		if !errors.Is(run.err, kafka.ErrTopicReplaced) {
			t.Errorf("it ended with %v, want ErrTopicReplaced", run.err)
		}
		run.err = nil // it is what this test wants
	})
}

// Kafka cannot take partitions away again, so an auditor that refuses them refuses forever.
func TestPartitionsThatWereAddedStopNobody(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 50)
		r.once(t)

		client, err := kgo.NewClient(kgo.SeedBrokers(r.settings.Broker))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		req := kmsg.NewPtrCreatePartitionsRequest()
		for _, topic := range []string{r.settings.System, r.settings.User, r.settings.Log} {
			more := kmsg.NewCreatePartitionsRequestTopic()
			more.Topic, more.Count = topic, partitions+2
			req.Topics = append(req.Topics, more)
		}
		resp, err := req.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range resp.Topics {
			if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
				t.Fatal(err)
			}
		}

		r.delete(t, want, w, 50)
		r.once(t)
		r.verify(t, want)
		for topic, n := range map[string]int32{r.settings.System: partitions, r.settings.User: partitions, r.settings.Log: 1} {
			for _, record := range r.readAll(t, topic) {
				if record.Partition >= n {
					t.Fatalf("a record in %s/%d", topic, record.Partition)
				}
			}
		}
	})
}
