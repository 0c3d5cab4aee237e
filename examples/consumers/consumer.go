// Command consumers prints what users deleted, and not what retention did: github.com/segmentio/kafka-go.
//
//	go run ./examples/consumers kafka:9092 lapse.deletes.user
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/segmentio/kafka-go"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: consumers BROKERS TOPIC")
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: strings.Split(os.Args[1], ","), Topic: os.Args[2],
		GroupID: os.Args[2] + "-go", StartOffset: kafka.FirstOffset,
	})
	for {
		// What is fetched is committed after it is done, so a crash repeats an event. Its event_id says so: it never changes.
		message, err := reader.FetchMessage(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		headers := map[string]string{}
		for _, h := range message.Headers {
			headers[h.Key] = string(h.Value)
		}
		// A fence marks a place in the topic and is no event. Headers say what an event is; its value need not be parsed.
		if headers["lapse-op"] != "fence" {
			fmt.Printf("%s\t%s\t%s\t%s\n", headers["lapse-cause"], headers["lapse-op"], headers["lapse-table"], message.Key)
		}
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			log.Fatal(err)
		}
	}
}
