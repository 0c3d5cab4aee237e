package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/report"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// heavyMajors are the servers on which histories are bent: the oldest, whose slots stay after, and the newest.
func heavyMajors(t *testing.T) []int { return pgtest.Heavy(t, 14, 18) }

// exits runs a command that must exit with code, and returns what it wrote, results first.
func (m *machine) exits(code int, args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.bin, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	text := out.String() + log.String()
	if got := cmd.ProcessState.ExitCode(); got != code {
		m.t.Fatalf("lapse %s exited with %d, want %d\n%s", strings.Join(args, " "), got, code, text)
	}
	m.t.Logf("$ lapse %s\n%s", strings.Join(args, " "), out.String())
	return text
}

// says fails the test unless text has all of wants.
func says(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// passed waits until a query of one boolean says true.
func (s *shop) passed(ctx context.Context, what, query string, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := untilTrue(ctx, s.db.Connect(s.t), query, args...); err != nil {
		s.t.Fatalf("wait until %s: %v", what, err)
	}
}

// overdue adds rows that are due.
func (s *shop) overdue(first, last int) {
	s.t.Helper()
	s.db.Exec(s.t, fmt.Sprintf(`insert into public.sessions select n, now() - interval '60 days', 'late' from generate_series(%d, %d) n`,
		first, last))
}

const noneDue = `select not exists (select from public.sessions where last_seen < now() - interval '30 days')`

// printed waits until lapse events prints n lines with a text.
func (s *shop) printed(ctx context.Context, n int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all string
	err := eventually(ctx, func() (bool, error) {
		all = s.m.lapse("events")
		return strings.Count(all, text) >= n, nil
	})
	if got := strings.Count(all, text); err != nil || got != n {
		s.t.Fatalf("%d lines of lapse events have %q, want %d (%v)\n%s", got, text, n, err, all)
	}
}

// A restored snapshot has the same system identifier and the same timeline, so that nothing in it shows that its past is
// another. Before there were histories, 500 rows were deleted with 0 events, and readiness was 200.
//
//lapse:long
func TestARestoredSnapshotStopsEverythingUntilAPersonAcceptsIt(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		d := s.serves(ctx)
		says(t, s.m.exits(0, "history"), "read: the log and the database are one history: an auditor reads the slot")
		says(t, s.m.exits(0, "history", "accept", "--reason", "nothing has happened"), "nothing to accept: ")
		snapshot := db.Snapshot(t, pgserver.Frozen)

		s.userDeletes(1, 10)
		s.overdue(1001, 1030)
		s.settled(ctx, d)
		s.printed(ctx, 10, " user ")
		s.printed(ctx, 80, " system ")

		db.Restore(t, snapshot)
		d.ready(http.StatusServiceUnavailable)
		d.wrote("lapse history accept --reason TEXT")
		s.overdue(2001, 2005) // due at once: nobody may delete them yet
		bent := s.m.types(3, "", `lapse history`)
		says(t, bent, "bent: the log and the database are not one history: ", "nothing is published, confirmed or deleted",
			"above that the log has what this database lacks: ", "10 user events", "30 system events",
			"next: if this database is the one to go on with: lapse history accept --reason TEXT")
		says(t, s.m.exits(2, "history", "accept", "--reason", "restored"), "there is no terminal to ask on: give --yes")
		s.passed(ctx, "nothing was deleted", `select count(*) = 5 from public.sessions where id > 2000`)

		says(t, s.m.types(1, "n\n", `lapse history accept --reason "restored last night's backup, ticket 4711"`), "nothing was accepted")
		says(t, s.m.types(0, "y\n", `lapse history accept --reason "restored last night's backup, ticket 4711" --unwatched`),
			"accepted: history 2, at ", "the auditor goes on within seconds if it runs", "1 policy: armed, and deleting again once")
		d.ready(http.StatusOK)
		s.passed(ctx, "deletion goes on", noneDue)
		s.userDeletes(1, 2) // rows that came back
		s.printed(ctx, 1, " rewind above 1/1/")
		s.printed(ctx, 12, " user ")
		s.printed(ctx, 85, " system ")
		says(t, s.m.exits(0, "history"), "read: ", "restored last night's backup, ticket 4711")
		says(t, s.m.exits(0, "history", "accept", "--reason", "again"), "nothing to accept: ")
		d.stop()
		says(t, s.m.exits(0, "history"), "straight: the log and the database are one history")
		s.rewindIsWhatItSays()
		s.rewindIsReported()
	})
}

// rewindIsReported checks what a report says of it: 30 rows of the policy and 10 of a user came back.
func (s *shop) rewindIsReported() {
	s.t.Helper()
	s.m.lapse("audit", "--once")
	s.m.exits(0, "report", "--from", "begin", "-o", "report.json")
	text, err := os.ReadFile(filepath.Join(s.m.dir, "report.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := report.Parse(text)
	if err != nil {
		s.t.Fatal(err)
	}
	p := reportedOf(s.t, r, "sessions-30d")
	if len(r.Rewinds.Items) != 1 || len(r.Rewinds.Items[0].Policies) != 1 {
		s.t.Fatalf("the report has the rewinds %+v", r.Rewinds)
	}
	w := r.Rewinds.Items[0]
	if back := w.Policies[0]; back.BroughtBack != 30 || back.DeletedSince != 5 || w.Users != 10 || p.Deleted.Rows != 85 || !p.Users.Deleted.Is(12) {
		s.t.Errorf("the report says %+v, %d by users; %d rows in all, by users %s", back, w.Users, p.Deleted.Rows, shown(p.Users.Deleted))
	}
}

// rewindIsWhatItSays checks the record in the topics.
func (s *shop) rewindIsWhatItSays() {
	s.t.Helper()
	seen := 0
	for line := range strings.Lines(s.m.lapse("events", "--json")) {
		var e struct {
			Mod   string `json:"mod_type"`
			Lapse struct {
				Reason   string
				History  uint32
				From, To evidence.Reach
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Mod != "REWIND" {
			continue
		}
		seen++
		if e.Lapse.Reason != "accepted" || e.Lapse.History != 2 || e.Lapse.From.History != 1 || e.Lapse.To.History != 1 {
			s.t.Errorf("the rewind says %+v", e.Lapse)
		}
	}
	if seen != 1 {
		s.t.Errorf("%d rewinds, want 1", seen)
	}
}

// A slot that is gone needed other topics, so that every consumer had to be told.
func TestADroppedSlotIsAGapInTheSameTopics(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		d := s.m.serve()
		s.settled(ctx, d)
		d.stop()
		db.Exec(t, `select pg_drop_replication_slot('lapse_`+db.Name+`')`)
		s.userDeletes(1, 10) // nobody will ever know
		s.overdue(1001, 1030)

		says(t, s.m.exits(3, "history"), "refused: the audit cannot start: ", "the slot does not exist", "run lapse init --new-slot")
		says(t, s.m.exits(1, "history", "accept", "--yes", "--reason", "no"), "nothing was accepted: ")
		says(t, s.m.exits(1, "run", "--once"), "lapse init --new-slot")
		says(t, s.m.exits(3, "status"), "slot lapse_"+db.Name+" is not there: nothing is deleted: `lapse init --new-slot`")
		says(t, s.m.exits(1, "init"), "is gone: what was deleted since is in no evidence; lapse init --new-slot makes another")
		says(t, s.m.types(0, "", `lapse init --new-slot`), "slot          lapse_"+db.Name+" at ", "is in no evidence",
			"next: lapse audit or lapse serve: the log goes on in the same topics, with a gap from 1/1/")
		says(t, s.m.exits(0, "history"), "gap: the log and the database are one history, and between the log's end and the slot nobody has read")
		s.passed(ctx, "deletion waits for the auditor", `select count(*) = 30 from public.sessions where id > 1000`)
		s.passed(ctx, "the policy is restated", `select state = 'arming' from lapse.gate`)

		d = s.m.serve()
		d.ready(http.StatusOK)
		s.passed(ctx, "deletion goes on", noneDue)
		s.userDeletes(11, 12)
		s.printed(ctx, 1, " gap from 1/1/")
		s.printed(ctx, 2, " user ")
		s.printed(ctx, 80, " system ")
		d.stop()
		says(t, s.m.exits(0, "history"), "straight: ")
	})
}

// A slot that the server gave up is dropped and made again by the same command.
func TestASlotThatWasLostIsMadeAgainByTheSameCommand(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 5, 20, 1000)
		d := s.m.serve()
		s.settled(ctx, d)
		d.stop()
		s.loseSlot(ctx)
		says(t, s.m.exits(1, "init"), "is lost: the server has given up what it was to keep for it", "lapse init --new-slot makes another")
		says(t, s.m.exits(0, "init", "--new-slot"), "was lost, and is dropped", "with a gap from 1/1/")
		says(t, s.m.exits(3, "verify"), "the slot was made again at ", "cannot be told before the auditor has written the gap: start it")
		s.userDeletes(1, 2)
		s.m.lapse("audit", "--once")
		s.printed(ctx, 1, " gap from 1/1/")
		s.printed(ctx, 2, " user ")
		if text := s.m.exits(0, "verify"); strings.Contains(text, "was made again") {
			t.Errorf("it says after the gap\n%s", text)
		}
		db.Exec(t, `create table public.later ()`, `select pg_replication_slot_advance('lapse_`+db.Name+`', pg_current_wal_lsn())`)
		says(t, s.m.exits(3, "verify"), "and the slot has been told that it has all up to", "the log was cut")
	})
}

// loseSlot makes the server give up the slot.
func (s *shop) loseSlot(ctx context.Context) {
	s.t.Helper()
	s.db.Exec(s.t, `alter system set max_slot_wal_keep_size = '1MB'`, `select pg_reload_conf()`, `create table public.filler (t text)`)
	conn := s.db.Connect(s.t)
	err := eventually(ctx, func() (lost bool, err error) {
		for _, statement := range []string{
			`insert into public.filler select repeat('x', 1000) from generate_series(1, 20000)`, `select pg_switch_wal()`, `checkpoint`,
		} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return false, err
			}
		}
		err = conn.QueryRow(ctx, `select wal_status = 'lost' from pg_replication_slots where slot_name = $1`, "lapse_"+s.db.Name).Scan(&lost)
		return lost, err
	})
	if err != nil {
		s.t.Fatalf("lose the slot: %v", err)
	}
	s.db.Exec(s.t, `alter system reset max_slot_wal_keep_size`, `select pg_reload_conf()`)
}

// One run up to the current end leaves a heartbeat, with which the executor deletes for two minutes.
func TestAuditOnceLeavesAHeartbeatBehind(t *testing.T) {
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 0, 1000)
		beats := func() (n int) {
			if err := db.Connect(t).QueryRow(ctx, `
				select count(*) from lapse.heartbeat b join pg_replication_slots s on s.slot_name = 'lapse_' || current_database()
				 where b.at > clock_timestamp() - interval '1 minute' and s.confirmed_flush_lsn > '0/0'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for i := 1; i <= 3; i++ { // the second and the third have nothing to read
			s.m.lapse("audit", "--once")
			if n := beats(); n != i {
				t.Errorf("after %d runs there are %d heartbeats", i, n)
			}
			var shown struct {
				Log struct {
					Beat string `json:"last_heartbeat"`
				}
				Database struct {
					Beat string `json:"last_heartbeat"`
				}
			}
			if err := resultIn(s.m.lapse("history", "--json"), &shown); err != nil {
				t.Fatal(err)
			}
			if shown.Log.Beat == "" || shown.Log.Beat != shown.Database.Beat {
				t.Errorf("after %d runs the log's last heartbeat is of %q, the database's of %q", i, shown.Log.Beat, shown.Database.Beat)
			}
		}
	})
}
