package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/survey"
)

// An application that writes local time into a timestamp has its rows deleted hours too early west of UTC, and too late east of it. What
// the column is read in is said, and where the newest row speaks against it, it is asked.
func TestASurveySaysByWhichZoneALocalTimeIsReadAndAsksWhereTheNewestRowsSpeakAgainstIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		for n, c := range map[string]struct {
			column, newest, more string // SQL of the column's type and of the newest value; more of expire
			index                bool
			asks                 string // what the question has; "" for no question
			reads                string // what the line has; "" for none
		}{
			"east":       {"timestamp", "now() at time zone 'Asia/Tokyo'", "", true, "as if Asia/Tokyo were its zone, which this database is set to, 9h0m0s ahead of the clock", "read in UTC"},
			"west":       {"timestamp", "now() at time zone 'America/Caracas' - interval '9 minutes'", "", true, "America/Caracas were its zone, which this database is set to, 4h0m0s behind", "read in UTC"},
			"half":       {"timestamp", "now() at time zone 'Asia/Kolkata'", "", true, "5h30m0s ahead", "read in UTC"},
			"utc":        {"timestamp", "now() at time zone 'UTC'", "", true, "", "where that is wrong, write zone: in the policy"},
			"idle":       {"timestamp", "now() at time zone 'UTC' - interval '3 hours'", "", true, "", "read in UTC"},
			"other":      {"timestamp", "now() at time zone 'Asia/Dubai'", "", true, "", "read in UTC"}, // which is no zone of the database
			"unindexed":  {"timestamp", "now() at time zone 'Asia/Tokyo'", "", false, "", "read in UTC"},
			"stated":     {"timestamp", "now() at time zone 'Asia/Tokyo'", ", zone: UTC", true, "", "read in UTC: "},
			"local":      {"timestamp", "now() at time zone 'Asia/Tokyo'", ", zone: Asia/Tokyo", true, "", "read in Asia/Tokyo: 2026-01-05 09:00:00 is 2026-01-05T00:00:00Z, 2026-01-06 21:30:00 is 2026-01-06T12:30:00Z"},
			"day":        {"date", "now()::date", "", true, "", "read in UTC: 2026-01-05 is 2026-01-05T00:00:00Z, 2026-01-06 is 2026-01-06T00:00:00Z"},
			"with_zone":  {"timestamptz", "now() + interval '9 hours'", "", true, "", ""},
			"expires_at": {"timestamp", "now() at time zone 'UTC' + interval '30 days'", "", true, "", "read in UTC"},
		} {
			w.do(fmt.Sprintf("create table %s (id int primary key, at %s)", n, c.column))
			written := "'2026-01-05 00:00+00'::timestamptz, '2026-01-06 12:30+00'::timestamptz"
			if c.column != "timestamptz" {
				zone := "UTC"
				if n == "local" {
					zone = "Asia/Tokyo"
				}
				written = strings.ReplaceAll(strings.ReplaceAll(written, "::timestamptz", "::timestamptz at time zone '"+zone+"'"), ", ", "), (2, ")
			} else {
				written = strings.ReplaceAll(written, ", ", "), (2, ")
			}
			// Those that no clock ever wrote are in nobody's way.
			w.do(fmt.Sprintf("insert into %s values (1, %s), (3, %s), (4, '9999-12-31'), (5, 'infinity'), (6, null)", n, written, c.newest))
			w.do(fmt.Sprintf("insert into %s select n, '2030-01-01'::timestamp + n * interval '1 hour' from generate_series(10, 2000) n", n))
			if c.index {
				w.do(fmt.Sprintf("create index on %s (at)", n))
			}
			w.do("analyze " + n)
			must(t, runSQL(w.admin, "alter database "+db.Name+" set timezone = 'Asia/Tokyo'"))
			must(t, runSQL(w.admin, "alter role "+w.app+" in database "+db.Name+" set timezone = 'America/Caracas'"))
			must(t, runSQL(w.admin, "alter role "+testRoles.Executor+" in database "+db.Name+" set timezone = 'Asia/Kolkata'"))
			file := "policies:\n  - {name: p, table: shop." + n + ", expire: {column: at, after: 30 days" + c.more + "}}\n"
			b := &bare{w, "postgres", nil}
			draft, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{AtMost: 100000}, b.proposals(file)[0].Resolved)
			must(t, err)
			w.apply(file)
			p := w.named("p")
			applied, err := survey.Ask{AtMost: 100000}.InForce(t.Context(), w.exec, &p)
			must(t, err)
			for kind, s := range map[string]*survey.Survey{"not applied": draft, "in force": applied} {
				switch {
				case s.Trouble != "" || s.Due != 2:
					t.Errorf("%s, %s: %d due, %s", n, kind, s.Due, s.Trouble)
				case c.reads == "" && s.Local != nil, c.reads != "" && (s.Local == nil || !strings.Contains(s.Local.String(), c.reads) || len(s.Local.Examples) != 2):
					t.Errorf("%s, %s: it says %v, want %q", n, kind, s.Local, c.reads)
				case s.Local != nil && (c.asks == "") != (s.Local.Question == ""), s.Local != nil && !strings.Contains(s.Local.Question, c.asks):
					t.Errorf("%s, %s: it asks %q, want %q", n, kind, s.Local.Question, c.asks)
				}
			}
			w.apply("policies:\n  - {name: p, table: shop." + n + ", expire: {column: at, after: 30 days" + c.more + "}, state: paused}\n")
			must(t, runSQL(w.admin, "update lapse.gate set state = 'dropped'"))
		}
	})
}

// With nothing due the examples are of this day.
func TestTheExamplesOfALocalTimeAreThereWithoutADueRow(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id int primary key, at timestamp)`)
		w.apply(policyText("shop.t", "at", "30 days"))
		s, err := surveyInForce(t.Context(), w.exec, &w.inForce()[0], time.Date(2026, 7, 1, 15, 0, 0, 0, time.UTC))
		must(t, err)
		if want := "at has no zone and is read in UTC: 2026-07-01 00:00:00 is 2026-07-01T00:00:00Z, 2026-06-30 00:00:00 is 2026-06-30T00:00:00Z; where that is wrong, write zone: in the policy"; s.Local.String() != want {
			t.Errorf("it says %s", s.Local)
		}
	})
}

// To state what was so before changes nothing of what falls due.
func TestToStateUTCIsNoOtherExpiry(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id int primary key, at timestamp)`)
		w.armed(policyText("shop.t", "at", "30 days", "    state: armed"))
		stated := "policies:\n  - {name: p, table: shop.t, expire: {column: at, after: 30 days, zone: UTC}, state: armed}\n"
		for _, file := range []string{stated, policyText("shop.t", "at", "30 days", "    state: armed")} {
			changes, err := w.difference(file, false)
			must(t, err)
			if c := changes[0]; c.Kind != change.Changed || c.MoreFallDue || c.HeldVersion != 0 || !strings.Contains(c.Diff(), "expire.zone") {
				t.Errorf("%s: %s, more falls due: %t, held back: %d\n%s", file, c.Kind, c.MoreFallDue, c.HeldVersion, c.Diff())
			}
			must(t, w.write(&changes[0]))
		}
	})
}
