package kafkaserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/internal/kafkaserver"
)

// freezeTest is how long a test waits for the answer that a frozen broker does not give.
const freezeTest = 500 * time.Millisecond

func TestAFrozenBrokerAnswersNobodyUntilItIsThawed(t *testing.T) {
	t.Parallel()
	broker := start(t, kafkaserver.Options{})
	if err := broker.Freeze(); err != nil {
		t.Fatal(err)
	}
	if !broker.Frozen() {
		t.Error("the broker does not say that it is frozen")
	}
	ask := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		client := &kafka.Client{Addr: kafka.TCP(broker.Addr()), Transport: &kafka.Transport{}}
		_, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		return err
	}
	if err := ask(freezeTest); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen broker: %v, want no answer until the deadline", err)
	}
	if err := broker.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := ask(10 * time.Second); err != nil || broker.Frozen() {
		t.Errorf("thawed: %v", err)
	}
	if err := broker.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Kill(); err != nil {
		t.Errorf("kill a frozen broker: %v", err)
	}
}
