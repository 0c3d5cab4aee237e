package page

import (
	"flag"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/status"
	"lapse/planner/record"
	"lapse/schemas"
)

var update = flag.Bool("update", false, "write the golden files again")

// hostile is a status in which everything that somebody else writes is markup, or hides something.
func hostile() *status.Status {
	at := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	started, next := at.Add(-4*time.Minute), at.Add(90*time.Second)
	const markup = `<script>alert("1")</script>` + "\u202e\n&'`"
	room := int64(5e9)
	s := &status.Status{
		At: at, Paused: &status.Halt{Halted: true, Since: at, By: markup, Reason: markup}, Suspended: markup, Witnesses: markup,
		Audit:     status.Audit{Required: true, Slot: markup, Exists: true, Active: true, Behind: 100, Held: 16e6, Headroom: &room, LastBeat: &started, History: 1},
		Executors: []status.Process{{Holder: markup, State: "running", Reason: markup}, {Holder: markup, State: "running", Silent: 40}},
		Holds:     []status.HeldTable{{Table: markup, Holds: 1}},
		LeftOver:  []string{markup},
	}
	for i, name := range []schemas.PolicyName{"p", schemas.PolicyName(strings.Repeat("longest-", 8)[:63])} {
		p := status.Policy{Line: status.Line{
			Policy: name, Version: 1, State: schemas.Armed, Table: markup, Next: &next, Lag: 100,
			LastRun: &status.LastRun{Started: started, Deleted: 12345, Ended: "not yet", Rests: markup, RestsSince: &started},
			Stays:   []record.Stay{{Reason: schemas.HeldByGuard, Detail: markup, NeedsPerson: i == 0}},
		}, Work: []status.Process{{Holder: markup, State: "slow", Reason: markup}}}
		s.Policies = append(s.Policies, p)
	}
	return s
}

// Whatever a login wrote, or a table is called, is text on the page, on its line, and in the order in which it is written.
func TestHostileNamesAreText(t *testing.T) {
	t.Parallel()
	p, err := New(t.Context(), Config{
		Database: `<b>app</b>` + "\u202e", Topics: Topics{Place: "Kafka", System: "<i>s</i>", User: "u", Log: "l"}, Logger: slog.New(slog.DiscardHandler),
		Published: func() Published { return Published{System: 1, User: 2, Unverified: 3} },
	})
	fixture.Must(t, err)
	s := hostile()
	view := overview{frame: frame{Title: "Lapse: " + p.Database, Database: p.Database}, Status: s}
	view.freshness = freshnessOf(errSlow, time.Now().Add(-90*time.Minute), s.At)
	first := time.Date(2025, 5, 3, 0, 0, 0, 0, time.UTC)
	days := &deleted{First: first, Policies: map[schemas.PolicyName][]int64{"p": make([]int64, daysShown)}, Uncounted: make([]bool, daysShown)}
	days.Policies["p"][daysShown-2], days.Policies["p"][daysShown-1], days.Uncounted[0] = 1, 1_234_567, true
	view.fill(p, days)
	w := httptest.NewRecorder()
	p.show(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), 200, "overview.tmpl", view)
	body := w.Body.String()
	for _, hidden := range []string{"<script>alert", "<b>app", "<i>s", "\u202e"} {
		if strings.Contains(body, hidden) {
			t.Errorf("the page has %q", hidden)
		}
	}
	fixture.WantFile(t, *update, "testdata/hostile.html", body)
}

// The first line is what matters most: what needs a person, for which `lapse status` exits with 3, then what keeps anything from being deleted
// or proven.
func TestTheFirstLineIsWhatMattersMost(t *testing.T) {
	t.Parallel()
	well := func() *status.Status {
		return &status.Status{
			Audit:     status.Audit{Required: true, Exists: true, Active: true},
			Executors: []status.Process{{Holder: "h", State: "running"}},
			Policies:  []status.Policy{{Line: status.Line{Policy: "p", State: schemas.Armed}}, {Line: status.Line{Policy: "q", State: schemas.Armed}}},
		}
	}
	room := int64(100)
	needs := []record.Stay{{Reason: schemas.HeldByGuard, NeedsPerson: true}}
	for want, edit := range map[string]func(s *status.Status){
		"ok: No policy needs a person":                       func(*status.Status) {},
		"ok: No policy needs a person, without an audit":     func(s *status.Status) { s.Audit = status.Audit{} },
		"idle: No policy is in force":                        func(s *status.Status) { s.Policies = nil },
		"act: One policy needs a person":                     func(s *status.Status) { s.Policies[0].Stays, s.Audit.Active = needs, false },
		"act: 2 policies need a person":                      func(s *status.Status) { s.Policies[0].Stays, s.Policies[1].Stays = needs, needs },
		"act: No executor runs, and policies are late":       func(s *status.Status) { s.Executors, s.Unattended = nil, []schemas.PolicyName{"p"} },
		"act: The audit has no slot, and nothing is deleted": func(s *status.Status) { s.Audit.Lost = true },
		"act: The auditor waits for a person":                func(s *status.Status) { s.Audit.Revoked, s.Audit.Active = true, false },
		"act: The audit has no slot, and nothing":            func(s *status.Status) { s.Audit.Exists, s.Policies = false, nil },
		"act: The audit's slot is nearly lost":               func(s *status.Status) { s.Audit.Held, s.Audit.Headroom = 300, &room },
		"look: Nobody audits":                                func(s *status.Status) { s.Audit.Active = false },
		"act: The auditor has stopped every deletion":        func(s *status.Status) { s.Paused = &status.Halt{Halted: true, Alarm: true} },
		"look: Nothing is deleted":                           func(s *status.Status) { s.Paused = &status.Halt{Halted: true} },
		"look: No executor runs":                             func(s *status.Status) { s.Executors[0].Silent = 30 },
	} {
		s := well()
		edit(s)
		text, g := headline(s, len(s.Needing()), false)
		if got := string(g) + ": " + text; !strings.HasPrefix(want, got) && !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		if (g == gradeAct) != s.NeedsPerson() {
			t.Errorf("%s: the page says %s, and the exit code is 3: %v", want, g, s.NeedsPerson())
		}
	}
}

// What was well is not said to be well while nothing newer is known.
func TestAnOldStatusIsNotWell(t *testing.T) {
	t.Parallel()
	s := &status.Status{Executors: []status.Process{{Holder: "h", State: "running"}}, Policies: []status.Policy{{Line: status.Line{Policy: "p"}}}}
	if text, g := headline(s, 0, true); g != gradeLook || !strings.HasPrefix(text, "Nothing newer is known") {
		t.Errorf("%s: %s", g, text)
	}
}

// A day on which one row was deleted is seen beside one of a million.
func TestTheYearShowsEachDay(t *testing.T) {
	t.Parallel()
	days, uncounted := make([]int64, daysShown), make([]bool, daysShown)
	days[3], days[364], uncounted[5] = 1, 1<<62, true
	c := yearChart(time.Date(2026, 2, 27, 0, 0, 0, 0, time.UTC), days, uncounted, "Rows")
	if len(c.Bars) != 3 || c.Bars[0].Height < 1 || c.Bars[2].Height != yearHeight || !c.Bars[1].Unknown || c.Uncounted != 1 {
		t.Errorf("%+v", c.Bars)
	}
	if c.First != "2026-02-27" || c.Last != "2027-02-26" || len(c.Months) != 13 || c.Months[1].Rows != "1" || c.Months[1].Name != "March 2026" {
		t.Errorf("from %s to %s, %+v", c.First, c.Last, c.Months)
	}
	if empty := yearChart(time.Unix(0, 0).UTC(), nil, make([]bool, daysShown), "Rows"); len(empty.Bars) != 0 || empty.Most != "" {
		t.Errorf("%+v", empty)
	}
}
