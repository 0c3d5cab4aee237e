package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"lapse/audit/kafka"
	"lapse/audit/witness"
	"lapse/replication"
	"lapse/schemas"
)

// asks are what the auditor asks of Database; a function that is nil is not asked.
type asks struct {
	beat  func(ctx context.Context, nonce uuid.UUID, server Server) error
	doubt func(ctx context.Context) error
	// alarm is called before that transaction's record is in the log, and again for a transaction that was stopped for already. The stop must
	// be durable when it returns. An error ends the stream, which is opened again: nothing after that transaction is recorded before.
	alarm func(ctx context.Context, reason string) error
	probe func(ctx context.Context, pid uint32) (schemas.LSN, error) // the end of the log; it is called every few seconds
	end   func(ctx context.Context) (schemas.LSN, error)             // where to stop; it is asked once. nil: Run does not stop by itself
}

// Config of an Auditor.
type Config struct {
	// Stream says where the slot is.
	Stream replication.StreamConfig

	// Kafka says how to reach the brokers. The auditor sets Topics, TransactionalID, FenceHeaders and Metrics itself.
	Kafka kafka.Config
	// Folder keeps the topics instead of Kafka, if it is set.
	Folder string

	// System, User and Log are the topics. System and User have Partitions partitions, Log has one. If Create is set, the
	// auditor makes those that are missing, with Replication copies (0: the brokers' default). If Safe is set, topics with
	// fewer copies, or whose acknowledged records may be on fewer brokers than such a topic's would be, are refused.
	System, User, Log string
	Partitions        int
	Replication       int
	Retention         time.Duration // of events, in topics that are made; 0: the brokers' default; less than 0: forever
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

	// Proofs is the topic of the proof store, which has one partition; ProofRetention is for how long it keeps what it has, if it is made
	// here. 0: the brokers' default; less than 0: forever.
	Proofs         string
	ProofRetention time.Duration
	// RowsKeys are the keys of the months, under which rows are committed to. A transaction that commits in a month without one ends Run.
	RowsKeys schemas.EpochKeys

	// LogKey signs the log's checkpoints and links its records.
	LogKey schemas.Key
	// FormerLogKeys are those that LogKey follows. The one that the log is under is needed until it has the record that hands it over.
	FormerLogKeys []schemas.Key
	// LogName is the origin of the checkpoints, which no other log may have. Default: one made of the database's identity and Log.
	LogName string

	// Witnesses cosign the checkpoints: Quorum of them must have. Anchors keep them.
	Witnesses []witness.Witness
	Quorum    int
	Anchors   []witness.Anchor

	// Database is for SQL beside the stream: heartbeats, their withdrawal where only a person can go on, the stop of all deletion where a
	// batch that the deletion functions wrote fits none of Keys, and probes of the server. nil: none of it, and such a batch is only logged
	// and counted.
	Database *Database
	// Once has Run and Copy end when everything up to the current end of the log is confirmed. It needs Database.
	Once bool

	asks asks

	// HeartbeatEvery is the time between two heartbeats; 0 is a minute, which the deletion functions count on.
	HeartbeatEvery time.Duration

	// FailoverTolerance is how much a promotion may lose without a person's word, by the time between heartbeats; 0 is five
	// minutes, negative is nothing.
	FailoverTolerance time.Duration

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
	if d := c.Database; d != nil {
		c.asks = asks{beat: d.Beat, doubt: d.Doubt, alarm: d.Alarm, probe: func(ctx context.Context, pid uint32) (schemas.LSN, error) {
			return d.probe(ctx, pid, c.Stream.ConnString)
		}}
		if c.Once {
			c.asks.end = d.end
		}
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
	if err := c.LogKey.Check(); err != nil {
		return fmt.Errorf("log %w", err)
	}
	if len(c.RowsKeys) == 0 {
		return errors.New("no key of a month to commit to rows with: run lapse keys rotate")
	}
	for epoch, key := range c.RowsKeys {
		if key == nil { // destroyed
			continue
		}
		if err := key.Check(); err != nil {
			return fmt.Errorf("rows %w (of %s)", err, epoch)
		}
	}
	return nil
}
