package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/kafka"
	"lapse/internal/config"
)

func TestWhatTheFileSaysOfTopicsReachesTheAuditor(t *testing.T) {
	for text, want := range map[string]struct {
		compression kafka.Compression
		safe        bool
	}{
		"":                        {kafka.Snappy, false},
		"  compression: none\n":   {kafka.None, false},
		"  compression: lz4\n":    {kafka.LZ4, false},
		"  compression: zstd\n":   {kafka.Zstd, false},
		"  replication: 3\n":      {kafka.Snappy, true}, // what a person has asked for is wanted of topics that are there
		"  compression: snappy\n": {kafka.Snappy, false},
	} {
		path := filepath.Join(t.TempDir(), "lapse.yaml")
		file := "database: postgres://me@db/app\nkafka: { brokers: 'a:1' }\ntopics:\n  partitions: 3\n" + text
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := config.Load(path, config.Overrides{}, func(name string) (string, bool) {
			if name == "LAPSE_KEY_ROWS" {
				return strings.Repeat("ab", 32) + ",2026-11 " + strings.Repeat("cd", 32), true
			}
			if strings.HasPrefix(name, "LAPSE_KEY_") {
				return strings.Repeat("ab", 32), true
			}
			return "", false
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := new(app).auditConfig(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Kafka.Compression != want.compression || c.Safe != want.safe || c.Partitions != 3 || c.Proofs != "lapse.proofs" || len(c.RowsKeys) != 1 {
			t.Errorf("%q: compression %q, safe %t, %d partitions", text, c.Kafka.Compression, c.Safe, c.Partitions)
		}
	}
}
