package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestEventsArePrintedAsTheyCome(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 0, 10, 1000)
	s.userDeletes(1, 1)
	s.m.lapse("audit", "--once")
	follow := s.m.start("events", "--follow", "--cause", "user")
	follow.wrote(`{"id":"1"}`)
	s.userDeletes(2, 3)
	s.m.lapse("audit", "--once")
	follow.wrote(`{"id":"2"}`)
	follow.wrote(`{"id":"3"}`)
	follow.stop()
	text, err := os.ReadFile(follow.log)
	if err != nil || strings.Count(string(text), " delete ") != 3 {
		t.Errorf("want three events, got %v\n%s", err, text)
	}

	wantExport(t, s.m, kafkatest.Broker(t), s.name+".log", s.name+".system", s.name+".user", s.name+".log.proofs")
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--limit", "2"}, 2},
		{[]string{"--key", "2"}, 1},
		{[]string{"--key", "2", "--since", "2100-01-01"}, 0},
		{[]string{"--since", "2020-01-01", "--until", "2100-01-01T00:00:00Z"}, 3},
		{[]string{"--until", "2020-01-01"}, 0},
	} {
		if said := s.m.lapse(append([]string{"events"}, c.args...)...); strings.Count(said, "\n") != c.want {
			t.Errorf("events %q: want %d, got\n%s", c.args, c.want, said)
		}
	}
	if said := s.m.exits(exitInvalid, "events", "--since", "2026-01-01", "--until", "2026-01-01"); !strings.Contains(said, "there is nothing between them") {
		t.Errorf("no time at all: %s", said)
	}

	if said := s.m.exits(exitInvalid, "events", "--follow", "--until", "2026-01-01"); !strings.Contains(said, "--follow waits for new events") {
		t.Errorf("following the past: %s", said)
	}

	// Somebody copies an event of theirs to where it is no event's place.
	if said := s.m.lapse("events"); strings.Contains(said, "broken") {
		t.Errorf("what the auditor has published is out of order:\n%s", said)
	}
	copyFirstEvent(t, kafkatest.Broker(t), s.name+".user")
	if said := s.m.exits(exitPerson, "events", "--cause", "user", "--policy", "sessions-30d"); !strings.Contains(said, "is broken in 1 place:") ||
		!strings.Contains(said, s.name+".user/") {
		t.Errorf("the broken order is not named:\n%s", said)
	}
}

// A route that follows may have more partitions than there were when the consumer began.
func TestEventsOfPartitionsThatWereAddedArePrintedToo(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), broker, 0, 10, 1000)
	s.m.lapse("audit", "--once")
	follow := s.m.start("events", "--follow", "--cause", "user")
	s.userDeletes(1, 1)
	s.m.lapse("audit", "--once")
	follow.wrote(`{"id":"1"}`)

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	for _, topic := range []string{s.name + ".system", s.name + ".user"} {
		more := kmsg.NewCreatePartitionsRequestTopic()
		more.Topic, more.Count = topic, 9
		req.Topics = append(req.Topics, more)
	}
	if _, err := req.RequestWith(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(s.m.dir, "lapse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.m.write("lapse.yaml", strings.Replace(string(config), "partitions: 3", "partitions: 9", 1))
	s.userDeletes(2, 20)
	s.m.lapse("audit", "--once")
	for id := 2; id <= 20; id++ {
		follow.wrote(fmt.Sprintf(`{"id":"%d"}`, id))
	}
	follow.stop()
	if said := s.m.lapse("events"); strings.Count(said, " delete ") != 20 {
		t.Errorf("want 20 events:\n%s", said)
	}
}

// copyFirstEvent repeats the first event of a topic at the end of its partition, after others or itself.
func copyFirstEvent(t *testing.T, broker *kafkaserver.Server, topic string) {
	t.Helper()
	records := kafkatest.ReadAllOn(t, broker, topic)
	first := slices.IndexFunc(records, func(r kafkatest.Record) bool { return r.Header(schemas.HeaderOp) == "delete" })
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r := records[first]
	planted := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		planted.Headers = append(planted.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	if err := client.ProduceSync(t.Context(), planted).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestToldToStopBeforeTheDatabaseIsThereIsNoFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "database: postgres://nobody@127.0.0.1:1/nothing\nkafka: { brokers: '127.0.0.1:1' }\nkeys: keys\n")
	for _, name := range []string{"tag", "log", "rows", "hash"} {
		m.env = append(m.env, "LAPSE_KEY_"+strings.ToUpper(name)+"="+strings.Repeat("ab", 32))
	}
	for _, command := range []string{"serve", "run", "audit"} {
		d := m.start(command)
		d.wrote("no connection to the database; trying again")
		d.stop()
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "stubborn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"waiting", errSignalled.Error()} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it wrote %q, want %q", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("it ended with %v, want exit code %d", err, exitFailed)
	}
}
