package kafkaserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
)

// parentEnv makes this test binary a parent that is about to be killed: see TestABrokerGoesWhenItsParentIsKilled.
const parentEnv = "LAPSE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		parent()
	}
	os.Exit(m.Run())
}

//lapse:long
func TestAcknowledgedRecordsOutliveKillAndStop(t *testing.T) {
	t.Parallel()
	broker := start(t, kafkaserver.Options{})
	addr := broker.Addr()
	if err := broker.CreateTopic(t.Context(), "kept", 3, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, broker, "before the kill", compress.None)
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce(t, broker, "before the stop", compress.None)
	begun := time.Now()
	if err := broker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("a controlled shutdown took %s", took)
	}
	if broker.Running() {
		t.Error("the broker runs after Stop")
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if broker.Addr() != addr {
		t.Errorf("address %s became %s", addr, broker.Addr())
	}
	if got := consume(t, broker, 2); got != "before the kill,before the stop" {
		t.Errorf("records %q", got)
	}
}

func TestTopicsAreNotMadeByMistake(t *testing.T) {
	t.Parallel()
	broker := start(t, kafkaserver.Options{Settings: map[string]string{"message.max.bytes": "2000"}})
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr()), Transport: &kafka.Transport{}}
	answer, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{"typo"}})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(answer.Topics[0].Error, kafka.UnknownTopicOrPartition) {
		t.Errorf("asking for a topic that is not there: %v", answer.Topics[0].Error)
	}
	if err := broker.CreateTopic(t.Context(), "kept", 1, nil); err != nil {
		t.Fatal(err)
	}
	client = &kafka.Client{Addr: kafka.TCP(broker.Addr()), Transport: &kafka.Transport{}}
	large, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: "kept", RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes(make([]byte, 4000))}),
	})
	if err == nil {
		err = large.Error
	}
	if !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Errorf("a record above the caller's message.max.bytes: %v", err)
	}
}

//lapse:long
func TestANamedFolderIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, kafkaserver.Options{Dir: dir, Login: true})
	if err := first.CreateTopic(t.Context(), "kept", 1, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, first, "kept", compress.None)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, kafkaserver.Options{Dir: dir})
	if second.Addr() != first.Addr() || second.LoginAddr() != first.LoginAddr() || second.LoginAddr() == second.Addr() {
		t.Errorf("addresses %s and %s became %s and %s", first.Addr(), first.LoginAddr(), second.Addr(), second.LoginAddr())
	}
	if got := consume(t, second, 1); got != "kept" {
		t.Errorf("records %q", got)
	}
}

func TestALibraryThatJavaUnpacksGoesWithAKilledBroker(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	broker := start(t, kafkaserver.Options{})
	if err := broker.CreateTopic(t.Context(), "kept", 1, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, broker, "kept", compress.Snappy) // the broker unpacks it, and for that its library
	unpacked := func() []string {
		found, err := filepath.Glob(filepath.Join(temporary, "lapse-*", "snappy-*.so"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(unpacked()) != 1 {
		t.Errorf("libraries %q, want that of snappy", unpacked())
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	if len(unpacked()) != 0 {
		t.Errorf("the broker left %q", unpacked())
	}
}

func TestABrokerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, missing := kafkaserver.Find()
	fixture.Missing(t, missing)
	_, err := kafkaserver.Start(t.Context(), kafkaserver.Options{Settings: map[string]string{"num.io.threads": "none"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("error %v does not have the broker's own text", err)
	}
}

func TestABrokerGoesWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	_, missing := kafkaserver.Find()
	fixture.Missing(t, missing)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(err, cmd.Wait()))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatal("the child's broker does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // Killed, as it should be.

	fixture.Eventually(t, "the broker goes with its parent", func() bool { return !isJava(pid) })
}

// parent starts a broker, says its process id, and waits to be killed.
func parent() {
	broker, err := kafkaserver.Start(context.Background(), kafkaserver.Options{Dir: os.Getenv(parentEnv)})
	if err == nil {
		fmt.Println(broker.PID())
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	fmt.Fprintln(os.Stderr, "parent:", err)
	os.Exit(1)
}

// isJava says whether the process lives. A zombie has no program.
func isJava(pid int) bool {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.Contains(program, "java")
}

func start(t *testing.T, options kafkaserver.Options) *kafkaserver.Server {
	t.Helper()
	_, missing := kafkaserver.Find()
	fixture.Missing(t, missing)
	begun := time.Now()
	broker, err := kafkaserver.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(begun))
	t.Cleanup(func() {
		if err := broker.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return broker
}

// produce adds a record to partition 0 of the topic "kept" and waits for its acknowledgement. A broker that has just
// started may not lead the partition yet.
func produce(t *testing.T, broker *kafkaserver.Server, value string, compression compress.Compression) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr()), Transport: &kafka.Transport{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a broker that came back is not in sync at once
	defer cancel()
	var refused error
	err := fixture.Until(ctx, func() (bool, error) {
		answer, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic: "kept", RequiredAcks: kafka.RequireAll, Compression: compression,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value))}),
		})
		if err == nil {
			err = answer.Error
		}
		refused = err
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(errors.Join(err, refused))
	}
}

// consume reads records from partition 0 of the topic "kept".
func consume(t *testing.T, broker *kafkaserver.Server, records int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker.Addr()}, Topic: "kept", MaxWait: 100 * time.Millisecond})
	defer func() { _ = reader.Close() }()
	var values []string
	for range records {
		record, err := reader.ReadMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(record.Value))
	}
	return strings.Join(values, ",")
}
