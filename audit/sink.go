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

// maxQueued bounds the records that wait. Each has about a kilobyte. The sink's buffer bounds the events of many small transactions that are in the
// topics meanwhile.
const maxQueued = 4096

// Sink is where the relay puts events and the log's records. Records of one partition stay in order. Its kinds: kafka.Publisher,
// folder.Publisher, and EventFile, which has no log.
type Sink interface {
	// Append takes a record without blocking, and numbers it above those before it. The caller may reuse its memory. ok is false if the
	// record was not taken: try again after Progress, unless Err says why no record ever will be.
	Append(record schemas.Record) (number uint64, ok bool)
	// Acked is the number up to which everything is durable.
	Acked() uint64
	// Progress receives when Acked may have moved, when there is room again, and when Err has an error.
	Progress() <-chan struct{}
	// Err is why nothing more is taken or made durable; nil while the sink works.
	Err() error
	// Stalled is how long the oldest record that is not durable has waited.
	Stalled() time.Duration
	// End is where the durable records of a partition end, for the log. A sink without a log has none.
	End(topic string, partition int32) store.End
}

// publisher is a sink with a log that has taken its topics over: no other process publishes there any more.
type publisher interface {
	Sink
	history.Fenced
	// Awaits tells a person what does not happen while Stalled grows.
	Awaits() string
	// Close stops publishing and frees the publisher's resources. It waits for no acknowledgement.
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

// takeTopics takes the topics over. It retries until it succeeds, or ctx ends.
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
