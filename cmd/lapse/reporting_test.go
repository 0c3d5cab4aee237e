package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

var (
	// packagePrefix is the name of one of our packages in front of an error's text, or of a part of it. The parts of lapse
	// serve are named by the commands that run one of them.
	packagePrefix = regexp.MustCompile(`(^|: )(audit|evidence|kafka|replication|planner|executor|schemas|config|setup): `)
	// doubled is a word that occurs as a prefix twice.
	doubled = regexp.MustCompile(`(^|\s)(\S+): (\S+): `)
)

// reportedOnce wants a failed command's error on the last line of its standard error, without a package's name and without a
// doubled prefix, and on no other line.
func reportedOnce(t *testing.T, command, log string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	text, found := strings.CutPrefix(lines[len(lines)-1], command+": ")
	if !found || text == "" {
		t.Fatalf("the last line is not the error of %s:\n%s", command, log)
	}
	if command == "lapse serve" {
		text = regexp.MustCompile(`^(audit|executor|http): `).ReplaceAllString(text, "")
	}
	if prefix := packagePrefix.FindString(text); prefix != "" {
		t.Errorf("%q in: %s", prefix, text)
	}
	for _, m := range doubled.FindAllStringSubmatch(text, -1) {
		if m[2] == m[3] {
			t.Errorf("%q in: %s", m[0], text)
		}
	}
	cause := text[strings.LastIndex(text, ": ")+1:] // of it every layer's text has a copy
	for _, line := range lines[:len(lines)-1] {
		if strings.Contains(line, strings.Trim(cause, " ")) || strings.Contains(line, text) {
			t.Errorf("logged, and returned too: %s\n%s", line, text)
		}
	}
}

// topicNames is the section topics of lapse.yaml.
type topicNames struct {
	system, user, log string
	partitions        int
}

func (n *topicNames) write(t *testing.T, d *desk) {
	t.Helper()
	d.env["LAPSE_CONFIG"] = filepath.Join(t.TempDir(), "lapse.yaml")
	text := fmt.Sprintf("topics: { system: %s, user: %s, log: %s, partitions: %d }\n", n.system, n.user, n.log, n.partitions)
	if err := os.WriteFile(d.env["LAPSE_CONFIG"], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

//lapse:long
func TestAFailingAuditReportsItsErrorOnceAndWithoutPackageNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says    string
		audited bool // once, before it is spoilt
		spoil   func(t *testing.T, topics *topicNames, db *pgtest.DB, broker *kafkaserver.Server)
	}{
		"another topic": {"the route is not the one in the log", true, func(_ *testing.T, topics *topicNames, _ *pgtest.DB, _ *kafkaserver.Server) {
			topics.user += ".other"
		}},
		"a topic with fewer partitions": {"partitions", false, func(t *testing.T, topics *topicNames, _ *pgtest.DB, broker *kafkaserver.Server) {
			topics.system = kafkatest.TopicOn(t, broker, 2)
		}},
		"no slot": {"lapse init", false, func(t *testing.T, _ *topicNames, db *pgtest.DB, _ *kafkaserver.Server) {
			db.Exec(t, `select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()`)
		}},
		"no table of heartbeats": {"read the heartbeats", true, func(t *testing.T, _ *topicNames, db *pgtest.DB, _ *kafkaserver.Server) {
			db.Exec(t, `alter table lapse.heartbeat rename to former`)
		}},
		"no log": {"the slot has been read before", true, func(_ *testing.T, topics *topicNames, _ *pgtest.DB, _ *kafkaserver.Server) {
			topics.log = kafkatest.Name()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, broker := pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t)
			d := newDesk(t, db, db.URL)
			d.env["LAPSE_KAFKA_BROKERS"], d.env["LAPSE_SUPERUSER"] = broker.Addr(), "allow"
			prefix := kafkatest.Name()
			topics := &topicNames{system: prefix + ".system", user: prefix + ".user", log: prefix + ".log", partitions: 3}
			topics.write(t, d)
			if c.audited {
				if code, _, log := d.lapse("audit", "--once"); code != exitDone {
					t.Fatalf("lapse audit: %s", log)
				}
			}
			c.spoil(t, topics, db, broker)
			topics.write(t, d)
			for _, args := range [][]string{{"audit", "--once"}, {"audit"}, {"serve", "--http", "127.0.0.1:0"}} {
				code, _, log := d.lapse(args...)
				if code != exitFailed && code != exitInvalid || !strings.Contains(log, c.says) {
					t.Errorf("lapse %s: exit code %d, says\n%s\nwant %q", args[0], code, log, c.says)
					continue
				}
				reportedOnce(t, "lapse "+args[0], log)
			}
		})
	}
}
