package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// The heartbeats of the auditor that was stopped a moment ago are still good when the next one finds its log missing. Neither
// an executor that runs already nor one that starts afterwards deletes by them.
func TestWhoDoesNotFindItsLogDeletesNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		d := s.serves(ctx)
		d.stop()
		path := filepath.Join(s.m.dir, "lapse.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.m.write("lapse.yaml", strings.Replace(string(text), s.name+".log", s.name+".other", 1))
		s.overdue(1001, 1030)
		kept := func(what string) {
			t.Helper()
			s.passed(ctx, what+": nothing was deleted", `select count(*) = 30 from public.sessions where id > 1000`)
		}
		d = s.m.serve()
		if code := d.ended(); code != 1 {
			t.Errorf("lapse serve without its log ends with %d", code)
		}
		if said, err := os.ReadFile(d.log); err != nil || !strings.Contains(string(said), "its log is not there") {
			t.Errorf("it does not say why: %v", err)
		}
		kept("serve")
		says(t, s.m.exits(1, "run", "--once"), "the auditor has revoked its heartbeats")
		kept("run")
		s.m.write("lapse.yaml", string(text))
		d = s.m.serve()
		s.passed(ctx, "deletion goes on", noneDue)
		d.stop()
	})
}

// The executor runs elsewhere, and knows of the auditor what the database says. Rows that it deleted between a forged event and the word of a
// person came out as unverified: claimed in a history that was over by then.
func TestAnExecutorElsewhereStopsAtAForgedEvent(t *testing.T) {
	t.Parallel()
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		d := s.serves(ctx)
		s.userDeletes(60, 64)
		s.settled(ctx, d)
		d.stop()
		s.forge(ctx)
		run := s.m.start("run", "--http", "127.0.0.1:0", "--log-format", "json")
		run.ready(http.StatusOK) // by the heartbeats of the auditor that has gone
		says(t, run.metrics(ctx), `lapse_slot_lag_bytes{of="restart"} `)
		auditor := s.m.start("audit", "--http", "127.0.0.1:0", "--log-format", "json")
		auditor.wrote("nothing is published, confirmed or deleted")
		s.overdue(1001, 1030)
		run.wrote("the auditor has revoked its heartbeats")
		s.passed(ctx, "nothing was deleted", `select count(*) = 30 from public.sessions where id > 1000`)
		says(t, s.m.exits(0, "history", "accept", "--yes", "--unwatched", "--reason", "a forged event, ticket 4712"), "accepted: history 2")
		s.passed(ctx, "deletion goes on", noneDue)
		s.printed(ctx, 80, " system ")
		s.printed(ctx, 0, " unverified ")
		auditor.stop()
		run.stop()
	})
}
