package config_test

import (
	"strings"
	"testing"

	"lapse/internal/config"
)

// published is the lapse.yaml that is promised to those who write one.
const published = `
database: postgres://lapse@db/app          # or the environment; or one each: {owner: …, executor: …, auditor: …}
slot: lapse_app                            # default: lapse_ and the database's name
keys: /etc/lapse/keys                      # tag, log, rows, hash; mode 0600; or LAPSE_KEY_TAG …
kafka:
  brokers: [kafka-1:9092, kafka-2:9092]
  tls: { ca: ca.pem, cert: client.pem, key: client.key }
  sasl: { mechanism: scram-sha-512, username: lapse, password_file: secret }
topics:                                    # one set per database
  system: lapse.deletes.system             # retention deletes
  user: lapse.deletes.user                 # everybody else's, and the unverified
  log: lapse.log
  partitions: 6
  replication: 3
  create: true
  compression: snappy                      # or none, lz4, zstd
  retention: 30 days                       # of the two event topics, where Lapse makes them
sink: kafka                                # or dir:/var/lib/lapse
log_name: app.example.com/lapse            # origin of the checkpoints, unique per log
proofs: 400 days                           # how long receipts can be made
witnesses: []                              # C2SP tlog-witness: url and key each, with quorum:
anchors: []                                # where checkpoints go besides: file:PATH, https://…
format: spanner                            # or debezium, cloudevents
audit: required                            # off: delete without evidence
limits: { rows_per_pass: 5000000, workers: 2 } # over all policies; also turn_rows, turn_time, batch_time
ledger_days: 30                            # confirmed ledger rows older than this are removed from the database
failover_tolerance: 5 minutes              # what a promotion may lose without a person's word
http: 127.0.0.1:7432                       # outside 9100-9999, where Prometheus' exporters live
`

func TestThePublishedFileIsRead(t *testing.T) {
	s, err := config.Load(write(t, published), config.Overrides{}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Witnesses.All) != 0 || s.Witnesses.Quorum != 0 || len(s.Anchors) != 0 || s.Limits.PassRows != 5_000_000 || s.Topics.Replication != 3 {
		t.Errorf("read as %+v", s)
	}
	one := "witnesses: [{ url: 'https://a', key: one.example.com+2ac01aa0+BDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop }]"
	if s, err = config.Load(write(t, strings.Replace(published, "witnesses: []", one, 1)), config.Overrides{}, nothing); err != nil || s.Witnesses.Quorum != 1 {
		t.Errorf("a list of one witness: %+v, %v", s, err)
	}
}
