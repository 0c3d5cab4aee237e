package planner

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
)

// What asks a person goes on asking under every version that comes into force without one.
func TestAnEditDoesNotCloseAnOpenBreaker(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		file := func(after string, more ...string) string {
			return policyText("shop.sessions", "last_seen", after, more...)
		}
		asks := func(when string, want int64) record.InForce {
			t.Helper()
			p, due := w.inForce()[0], int64(0)
			if p.Tripped != nil {
				due = p.Tripped.Due
			}
			if due != want {
				t.Errorf("%s: it asks about %d rows, want %d", when, due, want)
			}
			return p
		}
		trip := func() {
			t.Helper()
			p := w.inForce()[0]
			must(t, run.TripBreaker(t.Context(), w.exec, &p, &record.Trip{Cause: record.SuddenJump, Due: 500, Rows: 1000, Compared: 10}))
		}
		accept := func(rows int64) {
			t.Helper()
			must(t, w.script(fmt.Sprint(`update lapse.breaker set accepted_at = clock_timestamp(), accepted = `, rows)))
		}
		say := func(change change.Change) {
			t.Helper()
			must(t, w.write(&change))
			w.arm(1)
		}
		w.armed(file("30 days", "    state: armed"))
		trip()
		w.armed(file("30 days", "    every: 2 hours"))
		asks("another schedule", 500)
		w.armed(file("31 days", "    every: 2 hours"))
		asks("fewer rows", 500)
		w.armed(file("29 days", "    every: 3 hours"))
		p := asks("more rows, which are held back, and another schedule", 500)
		if p.Held == nil {
			t.Fatalf("nothing is held back: %+v", p)
		}
		w.armed(file("31 days", "    state: paused", "    batch: 10"))
		w.armed(file("31 days", "    state: paused", "    batch: 11"))
		p = asks("edits while it is paused", 500)
		resumed, err := change.Resume(t.Context(), w.admin, &p)
		must(t, err)
		say(resumed)
		asks("resumed", 500)

		accept(7)
		p = w.armed(file("31 days", "    batch: 12"))
		if asks("a yes that was not used", 0); p.Accepted != 7 {
			t.Errorf("7 were accepted, and %d are after an edit", p.Accepted)
		}
		r := w.open(&p)
		if got, err := w.call(w.lease(p, r), func(b *batch) { b.Limit = 3 }); err != nil || got.Deleted != 3 {
			t.Fatalf("a batch of the run that was accepted: %+v, %v", got, err)
		}
		w.armed(file("31 days", "    batch: 13"))
		asks("an edit while the run that was accepted is under way", 497)
		accept(1000)
		p = w.inForce()[0]
		w.deleteAll(p, w.open(&p), 10)
		w.armed(file("31 days", "    batch: 14"))
		p = asks("a yes that was used up", 0)
		if p.Accepted != 0 {
			t.Errorf("%d rows are accepted again", p.Accepted)
		}

		trip()
		w.armed(file("29 days", "    where: \"id > 0\""))
		w.armed(file("31 days", "    state: armed"))
		asks("there and back, without a yes", 500)
		w.armed(file("29 days"))
		p = w.inForce()[0]
		say(change.Arm(&p))
		asks("a person has armed a version that lets more rows fall due", 0)
		w.armed(file("31 days"))
		asks("a former version's breaker comes back", 0)
	})
}
