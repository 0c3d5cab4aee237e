package audit

import (
	"context"
	"time"

	"lapse/audit/folder"
	"lapse/audit/history"
	"lapse/audit/kafka"
	"lapse/audit/store"
	"lapse/schemas"
)

// maxQueued bounds the records that wait. Each is about a kilobyte; what many small transactions have in the topics
// meanwhile is bounded by the sink's buffer.
const maxQueued = 4096

// Sink is where the relay puts events and the log's records. Those of one partition stay in the order in which they were appended. Its
// kinds: kafka.Publisher, folder.Publisher, and EventFile, which has no log.
type Sink interface {
	// Append takes a record without blocking, and numbers it above those before it. Its memory is the caller's again. ok is false where
	// the record was not taken: try again after Progress, unless Err says why nothing will ever be.
	Append(record schemas.Record) (number uint64, ok bool)
	// Acked is the number up to which everything is durable.
	Acked() uint64
	// Progress receives when Acked may have moved, when there is room again, and when Err has an error.
	Progress() <-chan struct{}
	// Err is why nothing is taken or made durable any more; nil while the sink works.
	Err() error
	// Stalled is for how long what was appended first has waited to be durable.
	Stalled() time.Duration
	// End is where what is durable of a partition ends, for the log to say. A sink without a log has none.
	End(topic string, partition int32) store.End
}

// publisher is a sink with a log, which has taken its topics over: nobody else publishes there any more.
type publisher interface {
	Sink
	history.Fenced
	// Awaits says for a person what has not happened while Stalled grows.
	Awaits() string
	// Close stops publishing and frees what the publisher holds. It waits for no acknowledgement.
	Close(ctx context.Context) error
}

var (
	_ publisher = (*kafka.Publisher)(nil)
	_ publisher = (*folder.Publisher)(nil)
)

// newClient makes a client that reads the topics.
func (a *Auditor) newClient() (store.Client, error) {
	if a.config.Folder != "" {
		return folder.NewClient(a.config.Folder), nil
	}
	return kafka.NewClient(a.readerConfig())
}

// takeTopics takes the topics over. It tries again until it succeeds, or ctx ends.
func (s *session) takeTopics(ctx context.Context, checked *history.Topics) (publisher, error) {
	if s.auditor.config.Folder != "" {
		p, err := folder.Open(ctx, s.folderConfig(checked))
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	p, err := kafka.Open(ctx, s.publisherConfig(checked))
	if err != nil {
		return nil, err // not a nil pointer in the interface
	}
	return p, nil
}
