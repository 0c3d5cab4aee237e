package main

import (
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// A base backup has no slot. Whatever is typed in whichever order, nothing is deleted there until there is a slot and a person has accepted.
func TestARestoredBaseBackupWantsASlotAndThenAPerson(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		d := s.serves(ctx)
		copied := db.Snapshot(t, pgserver.Frozen)
		s.userDeletes(1, 10)
		s.settled(ctx, d)
		s.printed(ctx, 10, " user ")

		db.Restore(t, copied, pgserver.WithoutSlots())
		if code := d.ended(); code != exitFailed {
			t.Errorf("serve ends with %d", code)
		}
		s.overdue(2001, 2005)
		kept := func(when string) {
			t.Helper()
			s.passed(ctx, "nothing was deleted "+when, `select count(*) = 5 from public.sessions where id > 2000`)
		}
		says(t, s.m.exits(3, "status"), "is not there: nothing is deleted: `lapse init --new-slot`")
		s.m.exits(1, "history", "accept", "--yes", "--unwatched", "--reason", "too early")
		s.m.exits(1, "run", "--once")
		kept("without a slot")
		says(t, s.m.types(0, "", `lapse init --new-slot`), "the log and the database are not one history: ", "nothing is published, confirmed or deleted",
			"next: lapse history shows whether the log and the database agree, and what to type")
		s.m.exits(1, "run", "--once")
		s.m.exits(1, "audit", "--once")
		kept("before a person has accepted")
		says(t, s.m.exits(3, "history"), "bent: ", "10 user events")
		says(t, s.m.exits(0, "history", "accept", "--yes", "--unwatched", "--reason", "restored"), "accepted: history 2, at ")
		d = s.serves(ctx)
		s.passed(ctx, "deletion goes on", noneDue)
		s.printed(ctx, 1, " rewind above 1/1/")
		s.printed(ctx, 1, " gap from 2/1/")
		d.stop()
		s.m.exits(0, "verify")
	})
}
