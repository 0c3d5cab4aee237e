// Command consumers prints what users deleted, and not what retention did: github.com/segmentio/kafka-go.
//
//	go run ./examples/consumers kafka:9092 lapse.deletes.user
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/segmentio/kafka-go"
)

func main() {
	fmt.Fprintln(os.Stderr, consume(context.Background(), os.Args[1:]))
	os.Exit(1)
}

// consume goes on until something is in the way.
func consume(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: consumers BROKERS TOPIC")
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: strings.Split(args[0], ","), Topic: args[1], GroupID: args[1] + "-go", StartOffset: kafka.FirstOffset,
	})
	for {
		// What is fetched is committed after it is done, so a crash repeats an event. Its event_id says so: it never changes.
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		headers := map[string]string{}
		for _, h := range message.Headers {
			headers[h.Key] = string(h.Value)
		}
		// A fence marks a place in the topic and is no event. Headers say what an event is; its value need not be parsed.
		if headers["lapse-op"] != "fence" {
			fmt.Fprintf(os.Stdout, "%s\t%s\t%s\t%s\n", headers["lapse-cause"], headers["lapse-op"], headers["lapse-table"], message.Key)
		}
		if err := reader.CommitMessages(ctx, message); err != nil {
			return err
		}
	}
}
