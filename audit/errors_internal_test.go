package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// ending opens a publisher at a broker that answers one kind of request with an error, appends a record, and returns what
// the publisher ended with: what the relay hands on.
func ending(t *testing.T, key kmsg.Key, top, opening bool, answer *kerr.Error) error {
	t.Helper()
	p, err := ended(t, key, top, opening, answer)
	if err == nil {
		err = p.Err()
	}
	return fmt.Errorf("audit: %w", err)
}

// ended is the publisher of ending.
func ended(t *testing.T, key kmsg.Key, top, opening bool, answer *kerr.Error) (*kafka.Publisher, error) {
	t.Helper()
	const topic = "graded"
	cluster := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	fault := kfake.Fault{Keys: []kmsg.Key{key}, TopLevel: top, Err: answer, Count: -1}
	if opening {
		cluster.Fault(fault)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := kafka.Open(ctx, kafka.Config{
		Brokers: cluster.ListenAddrs(), TransactionalID: topic, Topics: []kafka.Topic{{Name: topic, Partitions: 1}},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = p.Close(context.WithoutCancel(ctx)) })
	cluster.Fault(fault)
	if _, ok := p.Append(schemas.Record{Topic: topic, Time: time.Now()}); !ok {
		t.Fatal(p.Err())
	}
	for p.Err() == nil {
		select {
		case <-p.Progress():
		case <-ctx.Done():
			t.Fatal("the publisher goes on")
		}
	}
	return p, nil
}

func TestOfASessionThatBreaksWhileAnotherTakesOverTheFenceCounts(t *testing.T) {
	t.Parallel()
	fenced, err1 := ended(t, kmsg.Produce, false, false, kerr.InvalidProducerEpoch)
	restarted, err2 := ended(t, kmsg.Produce, false, false, kerr.UnknownProducerID)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	broken := fmt.Errorf("audit: %w", io.ErrUnexpectedEOF)
	for name, c := range map[string]struct {
		session    session
		with, want error
	}{
		"fenced":                  {session{publisher: fenced}, broken, kafka.ErrFenced},
		"fenced, and told to end": {session{publisher: fenced}, context.Canceled, context.Canceled},
		"fenced at its end":       {session{publisher: fenced}, nil, nil},
		"forgotten by the broker": {session{publisher: restarted}, broken, io.ErrUnexpectedEOF},
		"no publisher yet":        {session{}, broken, io.ErrUnexpectedEOF},
	} {
		if got := c.session.orFenced(c.with); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// kafka-go's errors say of themselves that they are net.Errors, which is what a broken stream looks like.
func TestWhatEndsAPublisherIsNotTakenForABrokenStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		key     kmsg.Key
		top     bool
		opening bool
		answer  *kerr.Error
		is      error
		want    grade
	}{
		{"fenced", kmsg.Produce, false, false, kerr.InvalidProducerEpoch, kafka.ErrFenced, stop},
		{"fenced, newer", kmsg.Produce, false, false, kerr.ProducerFenced, kafka.ErrFenced, stop},
		{"fenced while opening", kmsg.Produce, false, true, kerr.InvalidProducerEpoch, kafka.ErrFenced, stop},
		{"too large", kmsg.Produce, false, false, kerr.MessageTooLarge, kafka.ErrTooLarge, stop},
		{"too large a list", kmsg.Produce, false, false, kerr.RecordListTooLarge, kafka.ErrTooLarge, stop},
		{"not authorised", kmsg.Produce, false, false, kerr.TopicAuthorizationFailed, nil, stop},
		{"not authorised in the cluster", kmsg.Produce, false, false, kerr.ClusterAuthorizationFailed, nil, stop},
		{"not authorised to take over", kmsg.InitProducerID, true, true, kerr.TransactionalIDAuthorizationFailed, nil, stop},
		{"the clock", kmsg.Produce, false, false, kerr.InvalidTimestamp, nil, stop},
		{"the record", kmsg.Produce, false, false, kerr.InvalidRecord, nil, stop},
		{"the policy", kmsg.Produce, false, false, kerr.PolicyViolation, nil, stop},
		{"sequence", kmsg.Produce, false, false, kerr.OutOfOrderSequenceNumber, kafka.ErrRestart, restart},
		{"producer", kmsg.Produce, false, false, kerr.UnknownProducerID, kafka.ErrRestart, restart},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := ending(t, c.key, c.top, c.opening, c.answer)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v, want %v", err, c.is)
			}
			if got := gradeOf(err); got != c.want {
				t.Errorf("grade %d, want %d: %v", got, c.want, err)
			}
			if network := net.Error(nil); errors.As(err, &network) {
				t.Errorf("%T calls itself an error of the network", network)
			}
		})
	}
}

func TestKafkasOwnErrorsAreGraded(t *testing.T) {
	t.Parallel()
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for name, c := range map[string]struct {
		err  error
		want grade
	}{
		"fenced":                        {kafka.ErrFenced, stop},
		"too large":                     {kafka.ErrTooLarge, stop},
		"replaced":                      {kafka.ErrTopicReplaced, stop},
		"closed":                        {kafka.ErrClosed, stop},
		"deletes records":               {&kafka.RetentionError{Topic: "t"}, stop},
		"no topic":                      {&kafka.MissingTopicError{Topic: "t"}, stop},
		"no such offset":                {&kafka.OffsetError{Topic: "t"}, stop},
		"to be opened again":            {kafka.ErrRestart, restart},
		"fenced, over a broken stream":  {errors.Join(broken, kafka.ErrFenced), stop},
		"restart, over a broken stream": {errors.Join(broken, kafka.ErrRestart), restart},
		"broken stream":                 {broken, reopen},
		"brokers away for too long":     {fmt.Errorf("kafka: open: %w", context.DeadlineExceeded), reopen},
		"somebody wanted it":            {context.Canceled, stop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := gradeOf(fmt.Errorf("audit: %w", c.err)); got != c.want {
				t.Errorf("grade %d, want %d", got, c.want)
			}
		})
	}
}
