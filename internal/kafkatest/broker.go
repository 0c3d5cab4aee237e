package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"lapse/internal/child"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/servers"
)

// Runner runs the tests of a binary: *testing.M, or a wrapper of it such as pgtest's or goleak's.
type Runner interface{ Run() int }

// binary is what a test binary's tests share. They find it through a package variable, because the testing package hands
// them nothing of TestMain's.
type binary struct {
	options kafkaserver.Options
	once    sync.Once
	broker  *kafkaserver.Server
	err     error
}

var current *binary

// Main runs the tests and exits. It is the whole of a TestMain.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap is Main for a TestMain that has more to do, with goleak or pgtest: its Run runs m and stops the broker.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ m Runner }

// Run implements Runner.
func (w wrapped) Run() int {
	b := &binary{}
	current = b
	code := w.m.Run()
	current = nil
	if b.broker == nil {
		return code
	}
	if code != 0 {
		path, err := servers.KeepLog(b.broker.LogFile(), strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")+"-kafka")
		fmt.Fprintln(os.Stderr, "Kafka: log kept in", path, errorOrNothing(err))
	}
	if err := b.broker.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "kafkatest:", err)
		return max(code, 1)
	}
	return code
}

func errorOrNothing(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Broker is the broker that the tests of this binary share.
func Broker(t testing.TB) *kafkaserver.Server {
	t.Helper()
	b := current
	if b == nil {
		t.Fatal("kafkatest: this package needs func TestMain(m *testing.M) { kafkatest.Main(m) }")
	}
	requireKafka(t)
	b.once.Do(func() {
		// Not the test's context: the broker is for all of them.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		b.broker, b.err = start(ctx, b.options)
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.broker
}

// Solo starts a broker for this test alone. Its log is shown if the test fails.
func Solo(t testing.TB, options kafkaserver.Options) *kafkaserver.Server {
	t.Helper()
	requireKafka(t)
	broker, err := start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the broker's log:\n%s", child.Tail(broker.LogFile(), 60))
		}
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	return broker
}

// Cluster starts brokers for this test alone that replicate to one another. Their logs are shown if the test fails.
func Cluster(t testing.TB, brokers int) *kafkaserver.Cluster {
	t.Helper()
	requireKafka(t)
	cluster, err := kafkaserver.StartCluster(t.Context(), brokers, kafkaserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	announce(cluster.Brokers()[0])
	t.Cleanup(func() {
		for _, broker := range cluster.Brokers() {
			if t.Failed() {
				t.Logf("the end of the log of %s:\n%s", broker.Addr(), child.Tail(broker.LogFile(), 30))
			}
		}
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// Fake is brokers in memory, for this test alone, which can be told to answer with an error: kfake, whose Fault and
// ControlKey say how. They know idempotent producers as brokers do: sequences, epochs, and what is sent again. What a record
// becomes on a disk, over a crash or when brokers disagree, only real ones show.
func Fake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// start starts a broker and tells the summary of make test (internal/testsummary) what the tests ran on.
func start(ctx context.Context, options kafkaserver.Options) (*kafkaserver.Server, error) {
	broker, err := kafkaserver.Start(ctx, options)
	if err == nil {
		announce(broker)
	}
	return broker, err
}

func announce(broker *kafkaserver.Server) {
	fmt.Printf("\n%sKafka %s\n", servers.Announcement, broker.Version())
}

func requireKafka(t testing.TB) {
	t.Helper()
	_, err := kafkaserver.Find()
	if err != nil && !errors.Is(err, kafkaserver.ErrNotInstalled) {
		t.Fatal(err)
	}
	fixture.Missing(t, err)
}

var topics atomic.Int64

// Topic makes a topic on the shared broker that no other test knows.
func Topic(t testing.TB, partitions int) string {
	t.Helper()
	return TopicOn(t, Broker(t), partitions)
}

// TopicOn is Topic for a broker from Solo.
func TopicOn(t testing.TB, broker *kafkaserver.Server, partitions int) string {
	t.Helper()
	name := Name()
	if err := broker.CreateTopic(t.Context(), name, partitions, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

// Name is a topic's name that no other test has, for a topic that the program under test makes itself.
func Name() string { return fmt.Sprintf("test-%d", topics.Add(1)) }
