//go:build long

package kafkaserver_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
)

// make test has a cluster in the audit's oracle: this is what that is built on.
func TestAClusterGoesOnWithoutTheLeaderWhetherItIsKilledFrozenOrMoved(t *testing.T) {
	t.Parallel()
	_, missing := kafkaserver.Find()
	fixture.Missing(t, missing)
	begun := time.Now()
	cluster, err := kafkaserver.StartCluster(t.Context(), 3, kafkaserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	resident := 0
	for _, broker := range cluster.Brokers() {
		resident += residentMB(t, broker.PID())
	}
	t.Logf("three brokers started in %s, %d MB resident", time.Since(begun).Round(100*time.Millisecond), resident)
	if len(cluster.Addrs()) != 3 {
		t.Fatalf("addresses %v", cluster.Addrs())
	}
	if err := cluster.CreateTopic(t.Context(), "kept", 1, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var want []string
	for _, fault := range []string{"killed", "frozen"} {
		first := leader(ctx, t, cluster, nil)
		produce(t, first, fmt.Sprint("before ", fault), compress.None)
		if fault == "killed" {
			err = first.Kill()
		} else {
			err = first.Freeze()
		}
		if err != nil {
			t.Fatal(err)
		}
		second := leader(ctx, t, cluster, first)
		produce(t, second, fmt.Sprint("without the ", fault), compress.None)
		if fault == "killed" {
			err = first.Start(ctx)
		} else {
			err = first.Thaw()
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "before "+fault, "without the "+fault)
		if got := consumeUpTo(ctx, t, cluster, "without the "+fault); !slices.Equal(got, want) {
			t.Errorf("%s: records %q, want %q", fault, got, want)
		}
	}
	for n := range 4 {
		former := leader(ctx, t, cluster, nil)
		if err := cluster.MoveLeader(ctx, "kept", 0); err != nil {
			t.Fatal(err)
		}
		next := leader(ctx, t, cluster, former)
		if !former.Running() || former.Frozen() {
			t.Error("the former leader is gone")
		}
		want = append(want, fmt.Sprint("moved ", n))
		produce(t, next, fmt.Sprint("moved ", n), compress.None)
	}
	if got := consumeUpTo(ctx, t, cluster, want[len(want)-1]); !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}

// consumeUpTo reads the topic "kept" up to a value. A record that was sent again, since its acknowledgement was lost,
// counts once.
func consumeUpTo(ctx context.Context, t *testing.T, cluster *kafkaserver.Cluster, last string) (values []string) {
	t.Helper()
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: cluster.Addrs(), Topic: "kept", MaxWait: 100 * time.Millisecond})
	defer func() { _ = reader.Close() }()
	for len(values) == 0 || values[len(values)-1] != last {
		record, err := reader.ReadMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		values = slices.Compact(append(values, string(record.Value)))
	}
	return values
}

// leader waits for a leader that is another one.
func leader(ctx context.Context, t *testing.T, cluster *kafkaserver.Cluster, than *kafkaserver.Server) *kafkaserver.Server {
	t.Helper()
	var found *kafkaserver.Server
	fixture.Must(t, fixture.Until(ctx, func() (_ bool, err error) {
		found, err = cluster.Leader(ctx, "kept", 0)
		return found != than, err
	}))
	return found
}

func residentMB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(status, []byte("VmRSS:"))
	kb, err := strconv.Atoi(string(bytes.Fields(after)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return kb / 1024
}
