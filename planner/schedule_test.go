package planner

import (
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/schemas"
)

// Cron and window are kept as they were written, read back by the executor, and change without reading the table or asking who
// armed the policy: no more falls due by them.
func TestCronAndWindowAreKeptWithTheVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	text := func(cron string) string {
		return policyText("shop.sessions", "last_seen", "30 days", "    cron: "+cron, `    window: "22:00-06:00 Europe/Berlin"`, isArmed)
	}
	w.apply(text("15 3 * * MON-fri Europe/Berlin"))
	w.arm(w.named("p").ID)
	p := w.named("p")
	p.Since = time.Date(2025, 10, 24, 12, 0, 0, 0, time.UTC) // a Friday, and clocks go back on Sunday
	next, err := p.NextRun()
	must(t, err)
	if want := time.Date(2025, 10, 27, 2, 15, 0, 0, time.UTC); !next.Equal(want) {
		t.Errorf("the next run is due %s, want %s", next, want)
	}
	if got := p.Schedule.Cron.String() + ", " + p.Schedule.Window.String(); got != "15 3 * * mon-fri Europe/Berlin, 22:00-06:00 Europe/Berlin" {
		t.Errorf("on record is %s", got)
	}
	for _, c := range []struct {
		cron    string
		kind    change.Kind
		version schemas.PolicyVersion
	}{
		{"15  3 * * mon-fri Europe/Berlin", change.Unchanged, 1},
		{`"@daily Europe/Berlin"`, change.Changed, 2},
	} {
		changes := w.apply(text(c.cron))
		if changes[0].Kind != c.kind || changes[0].ToState != schemas.Armed && changes[0].ToState != schemas.Arming || changes[0].HeldVersion != 0 {
			t.Errorf("%s: %s", c.cron, changes[0].Diff())
		}
		if v := w.named("p").Version; v != c.version {
			t.Errorf("%s: version %d is in force, want %d", c.cron, v, c.version)
		}
	}
}

// A yearly run is no jump of the clock.
func TestTheClockIsMeasuredByTheDaysThatACronLeavesOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		for _, c := range []struct {
			cron, reach string
			days        int
		}{{"15 3 * * mon-fri Europe/Berlin", "37 days", 4}, {"@yearly", "763 days", 366}} {
			p := w.armed(policyText("shop.sessions", "last_seen", "30 days", isArmed, `    cron: "`+c.cron+`"`))
			_ = w.open(&p)
			if got := valueOn[string](t, w.exec, `select reach::text from lapse.measure(1)`); got != c.reach {
				t.Errorf("%s: the clock may be %s ahead, want %s", c.cron, got, c.reach)
			}
			must(t, w.script(fmt.Sprintf(`truncate lapse.shard; update lapse.run set cutoff = now() - interval '%d days'`, c.days)))
			if got := w.jump(&p); got != "" {
				t.Errorf("%s: %d days after the last run: got %q", c.cron, c.days, got)
			}
		}
	})
}
