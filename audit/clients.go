package audit

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/audit/history"
	"lapse/audit/kafka"
	"lapse/audit/tree"
	"lapse/replication"
	"lapse/schemas"
)

// route is this configuration's route for a database: the first one of a log.
func (a *Auditor) route(id replication.Identity) *evidence.Route {
	c := &a.config
	route := &evidence.Route{
		Version: 1,
		Source: evidence.Source{
			SystemIdentifier: id.SystemIdentifier, DatabaseOID: id.DatabaseOID, Database: id.Database, Encoding: id.Encoding,
			Slot: c.Stream.Slot,
		},
		System: evidence.Topic{Name: c.System, Partitions: int32(c.Partitions)},
		User:   evidence.Topic{Name: c.User, Partitions: int32(c.Partitions)},
		Log:    evidence.Topic{Name: c.Log, Partitions: 1},

		Format:  cmp.Or(c.Format, evidence.FormatSpanner),
		HashKey: schemas.Fingerprint(c.HashKey),

		RowsKeys: evidence.RowsKeysOf(c.RowsKeys),
	}
	if key, err := c.treeKey(&route.Source); err == nil { // an error ends the start when the log's tree is read
		route.PublicKey = key.Public()
	}
	return route
}

// treeKey is the log's key, with its former keys.
func (c *Config) treeKey(source *evidence.Source) (*tree.Key, error) {
	return tree.NewKey(c.LogKey, c.logName(source), c.FormerLogKeys...)
}

// hashKeys are the configured hash keys.
func (c *Config) hashKeys() history.HashKeys {
	return append(history.HashKeys{c.HashKey}, c.FormerHashKeys...)
}

// readerConfig is the configuration of a Kafka client that reads the topics.
func (a *Auditor) readerConfig() kafka.Config {
	cfg := a.config.Kafka
	if cfg.Logger == nil {
		cfg.Logger = a.log
	}
	cfg.Topics = []kafka.Topic{{Name: a.config.System}, {Name: a.config.User}, {Name: a.config.Log}}
	return cfg
}

// No record is larger than this: see "a record larger than a topic takes" in the package's comment.
const (
	largestEvent  = 256 << 10
	largestRecord = 600 << 10 // of the log
)

// publisherConfig is the configuration of the publisher. The transactional id names the database and the slot. So a stray auditor of another database
// with the same topics fences nobody before it reads the log and is refused.
func (s *session) publisherConfig(checked *history.Topics) kafka.Config {
	a, source := s.auditor, &s.route.Source
	cfg := a.config.Kafka
	cfg.TransactionalID = fmt.Sprintf("lapse-%d-%d-%s", source.SystemIdentifier, source.DatabaseOID, source.Slot)
	cfg.Metrics = a.metrics.kafka
	if cfg.Logger == nil {
		cfg.Logger = a.log
	}
	cfg.Ours = history.IsOurs(s.route)
	cfg.FenceHeaders = evidence.FenceHeaders(source, s.stream.Identity().Timeline, a.process)
	cfg.Topics = nil
	proofs := evidence.Topic{Name: a.config.Proofs, Partitions: 1}
	for _, t := range append(checked.Events(), s.route.Log, proofs) {
		topic := kafka.Topic{
			Name: t.Name, Partitions: int(t.All()), Replication: a.config.Replication, Create: a.config.Create,
			Safe: a.config.Safe, Largest: largestEvent,
			// Not the brokers' defaults: a compacted topic is refused, and a record's time is the commit's.
			Configs: map[string]string{"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"},
		}
		if topic.Replication >= 3 {
			topic.Configs["min.insync.replicas"] = "2" // an acknowledged record outlives any one broker
		}
		if a.config.Retention != 0 {
			topic.Configs["retention.ms"] = strconv.FormatInt(retentionMillis(a.config.Retention), 10)
		}
		if t == proofs {
			topic.Largest = largestProof
			delete(topic.Configs, "retention.ms")
			if a.config.ProofRetention != 0 {
				topic.Configs["retention.ms"] = strconv.FormatInt(retentionMillis(a.config.ProofRetention), 10)
			}
		}
		if t == s.route.Log {
			// The log is kept forever, and zstd compresses batches of its records to half of what snappy does.
			topic.Forever, topic.Largest = true, largestRecord
			if cfg.Compression != kafka.None {
				topic.Compression = kafka.Zstd
			}
			topic.Configs["retention.ms"], topic.Configs["retention.bytes"] = "-1", "-1"
		}
		cfg.Topics = append(cfg.Topics, topic)
	}
	return cfg
}

// folderConfig is the configuration of the publisher into a folder.
func (s *session) folderConfig(checked *history.Topics) folder.Config {
	a := s.auditor
	cfg := folder.Config{
		Dir: a.config.Folder, Ours: history.IsOurs(s.route), MaxBuffered: a.config.Kafka.MaxBuffered, Logger: a.log,
		FenceHeaders: evidence.FenceHeaders(&s.route.Source, s.stream.Identity().Timeline, a.process),
	}
	for _, t := range checked.Events() {
		cfg.Topics = append(cfg.Topics, folder.Topic{Name: t.Name, Partitions: int(t.All()), Retention: a.config.Retention})
	}
	cfg.Topics = append(cfg.Topics, folder.Topic{Name: s.route.Log.Name, Partitions: 1, Forever: true, Tree: true},
		folder.Topic{Name: a.config.Proofs, Partitions: 1, Retention: a.config.ProofRetention})
	return cfg
}

// retentionMillis converts how long events are kept to retention.ms: -1 is forever.
func retentionMillis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}
