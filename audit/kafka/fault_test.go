package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

const faulty = "faulty"

// fake is a broker that can be told to answer with an error.
func fake(t *testing.T, options ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	cluster := kafkatest.Fake(t, append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(1, faulty)}, options...)...)
	cfg := kafka.Config{
		Brokers: cluster.ListenAddrs(), TransactionalID: faulty, Topics: []kafka.Topic{{Name: faulty, Partitions: 1}},
	}
	cfg.SetTiming(kafka.Timing{Backoff: 5 * time.Millisecond, Missing: 50 * time.Millisecond})
	return cluster, cfg
}

func TestErrorsThatPassAreRetriedAndTheRecordsAreThereOnce(t *testing.T) {
	t.Parallel()
	for _, passing := range []*kerr.Error{
		kerr.UnknownServerError, kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable,
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable,
		kerr.NetworkException, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError,
		kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ThrottlingQuotaExceeded, kerr.UnknownTopicID,
	} {
		t.Run(passing.Message, func(t *testing.T) {
			t.Parallel()
			cluster, cfg := fake(t)
			p := open(t, cfg)
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: passing, Count: 3})
			s := newSource(faulty, 1, 20)
			if err := s.publish(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
			if fault.Hits() != 3 {
				t.Errorf("%d requests failed, want 3", fault.Hits())
			}
			wantValues(t, cfg, s.total)
		})
	}
}

func TestErrorsThatDoNotPassEndThePublisherWithWhatToDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer *kerr.Error
		is     error
		says   string
	}{
		{kerr.InvalidProducerEpoch, kafka.ErrFenced, "another publisher"},
		{kerr.ProducerFenced, kafka.ErrFenced, "another publisher"},
		{kerr.OutOfOrderSequenceNumber, kafka.ErrRestart, "opened again"},
		{kerr.UnknownProducerID, kafka.ErrRestart, "opened again"},
		{kerr.MessageTooLarge, kafka.ErrTooLarge, "raise max.message.bytes"},
		{kerr.RecordListTooLarge, kafka.ErrTooLarge, "raise max.message.bytes"},
		{kerr.TopicAuthorizationFailed, nil, "grant this login WRITE, READ and DESCRIBE"},
		{kerr.ClusterAuthorizationFailed, nil, "IDEMPOTENT_WRITE"},
		{kerr.InvalidTimestamp, nil, "clock"},
		{kerr.InvalidRecord, nil, "without key"},
		{kerr.UnsupportedForMessageFormat, nil, "43"},
	} {
		t.Run(c.answer.Message, func(t *testing.T) {
			t.Parallel()
			cluster, cfg := fake(t)
			p := open(t, cfg)
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: c.answer, Count: -1})
			mustAppend(t, p, newSource(faulty, 1, 1).record(0))
			err := waitErr(t, p)
			for _, end := range []error{kafka.ErrFenced, kafka.ErrRestart, kafka.ErrTooLarge, kafka.ErrTopicReplaced, kafka.ErrClosed} {
				if errors.Is(err, end) != errors.Is(c.is, end) {
					t.Errorf("%v, want %v", err, c.is)
				}
			}
			if !strings.HasPrefix(err.Error(), "publish to faulty/0: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if kafka.Terminal(err) == errors.Is(c.is, kafka.ErrRestart) {
				t.Errorf("%v is terminal: %t", err, kafka.Terminal(err))
			}
			if p.Acked() != 0 {
				t.Error("acknowledged")
			}
		})
	}
}

func TestABatchThatTheBrokerKnowsAlreadyCounts(t *testing.T) {
	t.Parallel()
	cluster, cfg := fake(t)
	p := open(t, cfg)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.DuplicateSequenceNumber})
	waitAcked(t, p, mustAppend(t, p, newSource(faulty, 1, 1).record(0)))
	if fault.Hits() != 1 {
		t.Errorf("%d requests were answered so, want 1", fault.Hits())
	}
}

func TestOpeningWaitsForACoordinatorThatIsStillLoading(t *testing.T) {
	t.Parallel()
	for _, loading := range []*kerr.Error{
		kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ConcurrentTransactions,
	} {
		t.Run(loading.Message, func(t *testing.T) {
			t.Parallel()
			cluster, cfg := fake(t)
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: loading, Count: 3})
			open(t, cfg)
			if fault.Hits() != 3 {
				t.Errorf("%d requests failed, want 3", fault.Hits())
			}
		})
	}
}

func TestOpeningEndsWhereThisLoginMayNotTakeOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key    kmsg.Key
		top    bool
		answer *kerr.Error
		says   string
	}{
		{kmsg.InitProducerID, true, kerr.TransactionalIDAuthorizationFailed, "on the transactional id"},
		{kmsg.Produce, false, kerr.TopicAuthorizationFailed, "on the topic"},
		{kmsg.Produce, false, kerr.InvalidProducerEpoch, "another publisher"}, // one that was opened a moment later
		{kmsg.Fetch, false, kerr.TopicAuthorizationFailed, "on the topic"},
	} {
		t.Run(c.answer.Message, func(t *testing.T) {
			t.Parallel()
			cluster, cfg := fake(t)
			closePublisher(t, open(t, cfg)) // a fence, so that there is something to fetch
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, TopLevel: c.top, Err: c.answer, Count: -1})
			p, err := kafka.Open(t.Context(), cfg)
			if err == nil {
				closePublisher(t, p)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !kafka.Terminal(err) {
				t.Errorf("%v, want it to say %q", err, c.says)
			}
		})
	}
}

func TestTheLeaderMayMoveAtAnyTime(t *testing.T) {
	t.Parallel()
	cluster, cfg := fake(t)
	cfg.MaxBatchBytes, cfg.MaxBuffered = 1000, 4000
	cfg.SetTiming(kafka.Timing{Backoff: 5 * time.Millisecond, EndsEvery: 5 * time.Millisecond})
	p := open(t, cfg)
	s := newSource(faulty, 1, 3000)
	done := make(chan error, 1)
	go func() { done <- s.publish(t.Context(), p, nil) }()
	for n := range 10 {
		waitAcked(t, p, uint64(n*100))
		if err := cluster.MoveTopicPartition(faulty, 0, int32(n%2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantValues(t, cfg, s.total)
}

func TestItSpeaksTLSAndLogsIn(t *testing.T) {
	t.Parallel()
	certificate, pool := selfSigned(t)
	_, cfg := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "lapse", "secret"))
	cfg.TLS = &tls.Config{RootCAs: pool}
	cfg.SASL = plain.Mechanism{Username: "lapse", Password: "secret"}
	s := newSource(faulty, 1, 10)
	s.publishAll(t, cfg)
	wantValues(t, cfg, s.total)

	certificate, _ = selfSigned(t)
	_, cfg = fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	cfg.TLS = &tls.Config{RootCAs: pool}
	wantRefusedLogin(t, cfg, "certificate signed by unknown authority", "")
}

// kfake only closes the connection of a refused login; a broker answers, after a pause.
func TestALoginThatTheBrokersRefuseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{Login: true, Settings: map[string]string{
		"listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
		"listener.name.login.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
			`user_plain="secret";`,
	}})
	if err := broker.AddUser(t.Context(), "lapse", "secret"); err != nil {
		t.Fatal(err)
	}
	topic := kafkatest.TopicOn(t, broker, 1)
	cfg := config(broker, topic)
	cfg.Brokers = []string{broker.LoginAddr()}
	bySCRAM := func(algorithm scram.Algorithm, password string) sasl.Mechanism {
		m, err := scram.Mechanism(algorithm, "lapse", password)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	s := newSource(topic, 1, 10)
	for _, right := range []sasl.Mechanism{bySCRAM(scram.SHA512, "secret"), plain.Mechanism{Username: "plain", Password: "secret"}} {
		cfg.SASL = right
		s.publishAll(t, cfg)
	}
	s.verify(t, broker)

	const failed, check = "[58] SASL Authentication Failed", "check kafka.sasl.username and the password in kafka.sasl.password_file"
	for _, c := range []struct {
		login    sasl.Mechanism
		why, fix string
	}{
		{bySCRAM(scram.SHA512, "wrong"), failed, check},
		{plain.Mechanism{Username: "plain", Password: "wrong"}, failed, check},
		{plain.Mechanism{Username: "nobody", Password: "secret"}, failed, check},
		{bySCRAM(scram.SHA256, "secret"), "[33] Unsupported SASL Mechanism", "set kafka.sasl.mechanism to one that they do"},
	} {
		cfg.SASL = c.login
		wantRefusedLogin(t, cfg, c.why, c.fix)
	}
	if end := endOf(t, config(broker, topic)); end != 12 {
		t.Errorf("the topic ends at %d, want two fences and 10 records", end)
	}
}

// untilSaid is a log that ends a context when it says why.
type untilSaid struct {
	why string
	end context.CancelFunc
}

func (l untilSaid) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.why) {
		l.end()
	}
	return len(p), nil
}

// wantRefusedLogin opens nothing and is told why, and what to do, and no password.
func wantRefusedLogin(t *testing.T, cfg kafka.Config, why, fix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg.Logger = slog.New(slog.NewTextHandler(untilSaid{why, cancel}, nil))
	p, err := kafka.Open(ctx, cfg)
	if err == nil {
		closePublisher(t, p)
		t.Fatal("opened")
	}
	if said := err.Error(); !strings.Contains(said, why) || !strings.Contains(said, fix) || strings.Contains(said, "wrong") {
		t.Errorf("%v, want it to say %q and %q", err, why, fix)
	}
}

func TestLogsCarryNoKeysAndNoValues(t *testing.T) {
	t.Parallel()
	cluster, cfg := fake(t)
	var logged strings.Builder
	cfg.Logger = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := open(t, cfg)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 4})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1})
	rec := newSource(faulty, 1, 1).record(0)
	rec.Key, rec.Value = []byte("personal-key"), []byte("personal-value")
	p.Append(rec)
	err := waitErr(t, p)
	closePublisher(t, p)
	said := logged.String() + err.Error()
	if strings.Contains(said, "personal") || !strings.Contains(said, "sending it again") {
		t.Errorf("logged: %s", said)
	}
}

// wantValues reads the topic and wants the records 0 to n-1, in order.
func wantValues(t *testing.T, cfg kafka.Config, n int) {
	t.Helper()
	next := 0
	for _, rec := range readAll(t, newClient(t, cfg), cfg.Topics[0].Name, 0, 0, 1<<40) {
		if rec.IsFence() {
			continue
		}
		if string(rec.Value) != strconv.Itoa(next) {
			t.Fatalf("record %s, want %d", rec.Value, next)
		}
		next++
	}
	if next != n {
		t.Fatalf("%d records, want %d", next, n)
	}
}
