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

// asks are the auditor's calls to Database; nil functions are not called.
type asks struct {
	beat  func(ctx context.Context, nonce uuid.UUID, server Server) error
	doubt func(ctx context.Context) error
	// alarm is called before that transaction's record is in the log, and again for a transaction that was stopped for already. The stop must be
	// durable when it returns. After an error the stream is opened again, and nothing after that transaction is recorded before it succeeds.
	alarm func(ctx context.Context, reason string) error
	probe func(ctx context.Context, pid uint32) (schemas.LSN, error) // returns the end of the log; called every few seconds
	end   func(ctx context.Context) (schemas.LSN, error)             // returns where to stop; called once. nil: Run does not stop by itself
}

// Config of an Auditor.
type Config struct {
	// Stream says where the slot is.
	Stream replication.StreamConfig

	// Kafka says how to reach the brokers. The auditor sets Topics, TransactionalID, FenceHeaders and Metrics itself.
	Kafka kafka.Config
	// Folder keeps the topics instead of Kafka, if it is set.
	Folder string

	// System, User and Log are the topics. System and User have Partitions partitions, Log has one. If Create is set, the auditor creates
	// missing ones with Replication copies (0: the brokers' default). If Safe is set, it refuses topics with fewer copies, or with a lower
	// min.insync.replicas, than it would create.
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
	// FormerHashKeys are keys that former routes of the log name. One is needed as long as a transaction is half in the topics under it, because
	// another auditor died before it had finished.
	FormerHashKeys []schemas.Key

	// Proofs is the topic of the proof store, which has one partition. ProofRetention is how long it keeps its contents, if the auditor creates it.
	// 0: the brokers' default; below 0: forever.
	Proofs         string
	ProofRetention time.Duration
	// RowsKeys are the keys of the months, for commitments to rows. A transaction that commits in a month without a key ends Run.
	RowsKeys schemas.EpochKeys

	// LogKey signs the log's checkpoints and links its records.
	LogKey schemas.Key
	// FormerLogKeys are the keys before LogKey. The log's present key is needed until the log has the record that hands over to LogKey.
	FormerLogKeys []schemas.Key
	// LogName is the origin of the checkpoints, which no other log may have. Default: one made of the database's identity and Log.
	LogName string

	// Witnesses cosign the checkpoints: Quorum of them must have. Anchors keep them.
	Witnesses []witness.Witness
	Quorum    int
	Anchors   []witness.Anchor

	// Database is for SQL apart from the stream: heartbeats, their revocation if only a person can decide, the stop of all deletion if a batch of the
	// deletion functions fits none of Keys, and probes of the server. nil: none of it, and such a batch is only logged and counted.
	Database *Database
	// Once makes Run and Copy end when everything up to the current end of the log is confirmed. It needs Database.
	Once bool

	asks asks

	// HeartbeatEvery is the time between two heartbeats; 0 is a minute, which the deletion functions rely on.
	HeartbeatEvery time.Duration

	// FailoverTolerance is how much a promotion may lose without a person's decision, measured between heartbeats; 0 is five minutes, negative is
	// nothing.
	FailoverTolerance time.Duration

	// SlotPatience is how long Run waits for the slot while another stream has it, before it ends with replication.ErrSlotActive. 0: forever.
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

// checkKeys returns an error if a key is missing or unfit.
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
