package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// Config of an Auditor. Its functions must be safe for concurrent use with one another.
type Config struct {
	// Stream says where the slot is.
	Stream replication.StreamConfig

	// Kafka says how to reach the brokers. The auditor sets Topics, TransactionalID, FenceHeaders and Metrics itself.
	Kafka kafka.Config

	// System, User and Log are the topics. System and User have Partitions partitions, Log has one. If Create is set, the
	// auditor makes those that are missing, with Replication copies (0: the brokers' default). If Safe is set, topics with
	// fewer copies, or whose acknowledged records may be on fewer brokers than such a topic's would be, are refused.
	System, User, Log string
	Partitions        int
	Replication       int
	Retention         time.Duration // of events, in topics that are made; 0: the brokers' default; less than 0: for ever
	Create, Safe      bool

	// Keys are the tag keys under which a claim verifies.
	Keys []schemas.Key

	// Format is how events are written. Default: evidence.FormatSpanner.
	Format string
	// HashKey is what long key values are hashed with.
	HashKey schemas.Key
	// FormerHashKeys are those that former routes of the log name. One is needed as long as something is half in the topics under
	// it, when another auditor died before it had finished.
	FormerHashKeys []schemas.Key

	// WriteHeartbeat writes a heartbeat (lapse.beat) on the server of the stream, and fails on any other. It is called when
	// the history check has passed, and then each HeartbeatEvery. nil: no heartbeats.
	WriteHeartbeat func(ctx context.Context, nonce uuid.UUID, server Server) error

	// Doubt takes back the heartbeats that there are (lapse.doubt): it is called when the auditor has the slot and cannot go on without a
	// person. It may be called again for the same. nil: they count for as long as they would.
	Doubt func(ctx context.Context) error

	// Looked is called when the auditor has compared log and database and goes on, or has found the slot in another's hands. It may be
	// called again. nil: nobody asks.
	Looked func()

	// HeartbeatEvery is the time between two heartbeats; 0 is a minute, which the deletion functions count on.
	HeartbeatEvery time.Duration

	// FailoverTolerance is how much a promotion may lose without a person's word, by the time between heartbeats; 0 is five
	// minutes, negative is nothing.
	FailoverTolerance time.Duration

	// Alarm stops every deletion in the database: lapse.alarm(reason). It is called when a batch that the deletion functions
	// wrote fits none of Keys, before that transaction's record is in the log. The stop must be durable when it returns. An
	// error ends the stream, which is opened again: nothing behind that transaction is recorded before Alarm succeeds. It may
	// be called again for a transaction that was stopped for already. nil: such a batch is only logged and counted.
	Alarm func(ctx context.Context, reason string) error

	// Probe returns the end of the server's WAL, and the error of replication.CheckAsync for the server process of the
	// stream. It is called every few seconds beside each stream. nil: the lag does not count what the server has not sent.
	Probe func(ctx context.Context, pid uint32) (schemas.LSN, error)

	// Until says where to stop. It is asked once, before the first transaction is read, and Run ends when everything up to
	// its answer is confirmed. nil: Run does not stop by itself.
	Until func(ctx context.Context) (schemas.LSN, error)

	// SlotPatience is how long Run waits for the slot while another stream has it, before it ends with replication.ErrSlotActive. 0: as long
	// as it takes.
	SlotPatience time.Duration

	Metrics *Metrics     // nil: the auditor makes its own
	Logger  *slog.Logger // nil: nothing is logged
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.HeartbeatEvery == 0 {
		c.HeartbeatEvery = time.Minute
	}
	if c.FailoverTolerance == 0 {
		c.FailoverTolerance = 5 * time.Minute
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// checkKeys is an error if a key is missing or unfit.
func (c *Config) checkKeys() error {
	if len(c.Keys) == 0 {
		return errors.New("no tag key: without one no claim can be verified")
	}
	for _, key := range c.Keys {
		if err := key.Check(); err != nil {
			return fmt.Errorf("tag %w", err)
		}
	}
	if err := c.HashKey.Check(); err != nil {
		return fmt.Errorf("hash %w", err)
	}
	return nil
}
