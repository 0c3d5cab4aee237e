package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"lapse/schemas"
)

// Topic says what a topic must be like.
type Topic struct {
	Name string

	// Partitions is how many are published to, and how many a created topic gets. A topic with fewer is refused. In a topic with more, the others get
	// no records and no fence, and their tails are not read. 0 means all existing ones, and cannot be created.
	Partitions int

	// Replication that the topic is made with; 0 leaves it to the brokers. An existing topic with less is warned of.
	Replication int

	// Safe makes Open refuse, with an *UnsafeError, an existing topic with fewer replicas than Replication, or with a smaller
	// min.insync.replicas than in Configs. If a topic becomes so while the publisher runs, that is only logged.
	Safe bool

	// Create makes the topic if it is missing.
	Create bool

	// Tail is how many of the newest records of ours in each partition Open reads, for Publisher.Last. 0 means 1: enough
	// for a caller that sends again what is above its last record.
	Tail int

	// Largest is the size of the largest record that is published here. Open refuses a topic whose max.message.bytes is too small, with a
	// *SizeError. If it becomes so while the publisher runs, that is logged, and the publisher ends with ErrTooLarge at the first such
	// record. 0: not checked.
	Largest int

	// Forever refuses a topic that deletes records by age or size, with a *RetentionError. A compacted topic is always
	// refused.
	Forever bool

	// Compression of this topic's batches; "" is Config.Compression.
	Compression Compression

	// Configs are settings for the topic if it is created here, for instance retention.ms=-1. An existing topic with a smaller
	// min.insync.replicas than this is logged, or refused.
	Configs map[string]string
}

// Config of a Publisher and of a Client, which uses Brokers, TLS, SASL, Dial, Logger and the names of Topics.
type Config struct {
	// Brokers to begin with, as host:port; the others are found through them.
	Brokers []string

	TLS  *tls.Config
	SASL sasl.Mechanism

	// Dial opens connections; nil means a plain dialer with a timeout of three seconds.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// TransactionalID is the name under which publishers take over from each other: of two with the same name only the one that was opened last
	// continues.
	TransactionalID string

	// Topics that are published to. A Client may leave it empty: it then keeps track of all topics of the cluster.
	Topics []Topic

	// FenceHeaders are put on every fence, after lapse-op.
	FenceHeaders []schemas.Header

	// Ours tells our records from foreign ones. Open calls it for the records at the end of each partition, other than fences, to find the tail that
	// Publisher.Last returns. It must be safe for concurrent use. nil accepts every record.
	Ours func(*schemas.Record) bool

	// MaxBatchBytes is the largest batch that is sent, and so the largest record. 0 means 900 KiB: a broker takes 1 MiB by
	// default. A lower limit of the topic counts instead, if this login may read it. Batches of more than one record stay
	// below 256 KiB.
	MaxBatchBytes int

	// Compression of batches where the topic does not say it; "" is Snappy. Limits count bytes before compression.
	Compression Compression

	// MaxBuffered is how many bytes of records may be unacknowledged. 0 means 4 MiB: 400,000 records a second were published
	// with that, and no more with 16 MiB.
	MaxBuffered int

	// Metrics to count in. Publishers that follow one another in a process share one. nil: nothing is exported.
	Metrics *Metrics

	Logger *slog.Logger

	timing *timing // for tests; nil means defaultTiming
}

// timing holds the durations on which the promise of one copy depends, and linger. They fit the brokers' default of a day for
// producer.id.expiration.ms; doc.go says how.
type timing struct {
	request    time.Duration // after that, an unanswered request is sent again
	backoffMin time.Duration
	backoffMax time.Duration
	missing    time.Duration // a topic that is unknown for so long counts as missing

	oldRecords    time.Duration // a batch whose records are all older gets a fence: see batch.addFenceIfOld
	maxUnanswered time.Duration // a batch that is unanswered for longer is not sent again
	renewEvery    time.Duration // how often the session is renewed
	maxUnrenewed  time.Duration // a session that was not renewed for longer sends nothing
	linger        time.Duration // a batch that is not full is sent so long after the one before
	endsEvery     time.Duration // how often the ends of all partitions are checked: see Publisher.watch
	settingsEvery time.Duration // how often the topics' settings are checked
}

var defaultTiming = timing{
	request:    10 * time.Second,
	backoffMin: 20 * time.Millisecond,
	backoffMax: time.Second,
	missing:    3 * time.Second,

	oldRecords:    time.Hour,
	maxUnanswered: time.Hour,
	renewEvery:    6 * time.Hour,
	maxUnrenewed:  18 * time.Hour,
	linger:        5 * time.Millisecond,
	endsEvery:     time.Minute,
	settingsEvery: time.Hour,
}

func (c *Config) withDefaults() Config {
	full := *c
	full.Topics = slices.Clone(c.Topics)
	if full.MaxBatchBytes == 0 {
		full.MaxBatchBytes = 900 << 10
	}
	if full.MaxBuffered == 0 {
		full.MaxBuffered = 4 << 20
	}
	if full.Dial == nil {
		full.Dial = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	}
	if full.Metrics == nil {
		full.Metrics = NewMetrics()
	}
	if full.Logger == nil {
		full.Logger = slog.New(slog.DiscardHandler)
	}
	if full.timing == nil {
		full.timing = &defaultTiming
	}
	return full
}

// check returns everything that is wrong with the configuration at once.
func (c *Config) check() error {
	var errs []error
	if c.TransactionalID == "" {
		errs = append(errs, errors.New("no transactional id: without one a former publisher cannot be fenced"))
	}
	if len(c.Topics) == 0 {
		errs = append(errs, errors.New("no topics to publish to"))
	}
	seen := make(map[string]bool, len(c.Topics))
	for _, t := range c.Topics {
		if _, err := cmp.Or(t.Compression, c.Compression).codec(); err != nil {
			errs = append(errs, err)
		}
		switch {
		case t.Name == "":
			errs = append(errs, errors.New("a topic without name"))
		case seen[t.Name]:
			errs = append(errs, fmt.Errorf("topic %q is named twice: each stream of records needs its own", t.Name))
		case t.Create && t.Partitions < 1:
			errs = append(errs, fmt.Errorf("topic %q is to be created, but its partitions are not given", t.Name))
		}
		seen[t.Name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configure Kafka: %w", err)
	}
	return nil
}
