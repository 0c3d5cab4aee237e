package planner

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// under is difference with floors.
func (w *world) under(floors []policyfile.Floor, text string) ([]change.Change, error) {
	w.t.Helper()
	file, err := policyfile.Parse("policies.yaml", []byte(text))
	must(w.t, err)
	file.Under(floors)
	return change.Difference(w.t.Context(), w.admin, file, false, apply.Fit, nil)
}

func floor(table, least string, trust bool) policyfile.Floor {
	return policyfile.Floor{Table: table, Least: least, Reason: "HGB 257", TrustColumn: trust}
}

func TestAPolicyThatWouldDeleteSoonerThanAFloorIsRefusedByName(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table "Audit ""x" (id int primary key, at timestamptz, ttl int)`,
			`create table notes (id int primary key, session bigint references sessions on delete cascade)`,
			`create index on notes (session)`,
			`create table local (id int primary key, at timestamp, day date, made timestamptz, early timestamp generated always as (at - interval '14 hours') stored,
			  said text, doc jsonb, later text generated always as (said) stored)`)
		local := func(expire string) string {
			return "policies:\n  - {name: p, table: shop.local, expire: {" + expire + "}}\n"
		}
		ttl := "policies:\n  - name: p\n    table: 'shop.\"Audit \"\"x\"'\n    expire: { column: at, ttl_column: ttl, ttl_default: 10 years }\n"
		sessions := func(after string) string { return policyText("shop.sessions", "last_seen", after) }
		for _, c := range []struct {
			name   string
			floors []policyfile.Floor
			file   string
			want   string // "" for none
		}{
			{"long enough", []policyfile.Floor{floor("shop.sess*", "90 days", false)}, sessions("90 days"), ""},
			{"months that are certainly longer", []policyfile.Floor{floor("shop.sess*", "90 days", false)}, sessions("4 mon"), ""},
			{"sooner", []policyfile.Floor{floor("shop.sess*", "90 days", false)}, sessions("89 days"), "kept for at least 90 days"},
			{"months that may be shorter", []policyfile.Floor{floor("*.sess??ns", "90 days", false)}, sessions("3 mon"), "HGB 257"},
			{"a floor of another table", []policyfile.Floor{floor("shop.ses", "90 days", false), floor("shop.session", "90 days", false)}, sessions("1 day"), ""},
			{"the strictest of several", []policyfile.Floor{floor("shop.*", "1 day", false), floor("*.sessions", "1 year", false)}, sessions("30 days"), "at least 1 year"},
			{"a column that says when", []policyfile.Floor{floor("shop.sessions", "90 days", false)}, sessions("0 days"), "the row itself says"},
			{"and is trusted", []policyfile.Floor{floor("shop.sessions", "90 days", true)}, sessions("0 days"), ""},
			{"trust is no shorter time", []policyfile.Floor{floor("shop.sessions", "90 days", true)}, sessions("30 days"), "write a longer after"},
			{"a ttl of the row's own", []policyfile.Floor{floor(`shop.Audit "x`, "90 days", false)}, ttl, "the row itself says"},
			{"rows that would go along", []policyfile.Floor{floor("shop.notes", "90 days", false)}, sessions("10 years"), "rows of shop.notes are kept"},
			{"rows that may go along", []policyfile.Floor{floor("shop.notes", "90 days", true)}, sessions("1 day"), ""},
			// Read 14 hours before UTC, "30 days" of what was written in UTC are 29 days 10 hours; written 12 hours west of it, and read as UTC, 29 days 12 hours.
			{"a zone that is read early", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days, zone: Pacific/Kiritimati"), "write after: 30 days 26:00:00"},
			{"and what makes up for it", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days 26 hours, zone: Pacific/Kiritimati"), ""},
			{"a local time that is read in UTC", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days"), "up to 12:00:00 sooner"},
			{"half a day more", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days 12 hours"), ""},
			{"a day more", []policyfile.Floor{floor("shop.local", "1 mon", false)}, local("column: at, after: 32 days"), ""},
			{"a zone in the west", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days, zone: America/New_York"), "write after: 30 days 08:00:00"},
			{"a zone whose summer is in January", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: at, after: 30 days, zone: Pacific/Auckland"), "write after: 30 days 25:00:00"},
			{"a date", []policyfile.Floor{floor("shop.local", "1 year", false)}, local("column: day, after: 1 year"), "write after: 1 year 12:00:00"},
			{"a text", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: said, iso8601: true, after: 30 days"), "write after: 30 days 12:00:00"},
			{"a text or a number", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: doc, path: a, instant: true, after: 30 days"), "write after: 30 days 12:00:00"},
			{"a number", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: doc, path: a, epoch: s, after: 30 days"), ""},
			{"a zone that is trusted", []policyfile.Floor{floor("shop.local", "30 days", true)}, local("column: at, after: 30 days, zone: Pacific/Kiritimati"), ""},
			{"a column with its zone", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: made, after: 30 days"), ""},
			{"a column that the table computes", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: early, after: 90 days"), "computes from other columns"},
			{"a text that the table computes", []policyfile.Floor{floor("shop.local", "30 days", false)}, local("column: later, iso8601: true, after: 90 days"), "computes from other columns"},
			{"and is trusted with it", []policyfile.Floor{floor("shop.local", "30 days", true)}, local("column: early, after: 30 days"), ""},
			{"a floor that is no duration", []policyfile.Floor{floor("shop.x", "ninety", false)}, sessions("1 day"), "lapse.yaml"},
			{"a pattern is no regular expression", []policyfile.Floor{floor("shop.(sess", "90 days", false), floor("shop.s.*", "90 days", false)}, sessions("1 day"), ""},
		} {
			changes, err := w.under(c.floors, c.file)
			var complaints yamldoc.Errors
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", c.name, err)
			case c.want != "" && (!errors.As(err, &complaints) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "policy p: ")):
				t.Errorf("%s: got %v and %d changes, want a refusal with %q", c.name, err, len(changes), c.want)
			}
		}
	})
}

// Calls of the library pass the same gate: the functions are not made.
func TestNoFunctionsAreMadeBelowAFloor(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		changes, err := w.difference(policyText("shop.sessions", "last_seen", "30 days"), false)
		must(t, err)
		f := changes[0].Next
		f.Definition.Floors, err = []functions.Floor{{Table: "shop.*", Of: "shop.sessions", Least: interval(t, w, "31 days"), Reason: "x"}}, nil
		must(t, err)
		if _, _, err := functions.SQL(&f.Definition, testRoles); err == nil || !strings.Contains(err.Error(), "kept for at least 31 days") {
			t.Errorf("FunctionsSQL: %v", err)
		}
		if err := w.write(&changes[0]); err == nil || w.functions() != "" {
			t.Errorf("Write: %v, and there are %s", err, w.functions())
		}
	})
}

func interval(t *testing.T, w *world, text string) (i expiry.Interval) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) (err error) {
		i, _, err = expiry.ReadInterval(t.Context(), tx, text)
		return err
	}))
	return i
}

func TestTheFloorInForceIsPartOfTheVersionAndARaisedOneIsNoticed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		file := func(after string, more ...string) string {
			return policyText("shop.sessions", "last_seen", after, more...)
		}
		low, high := []policyfile.Floor{floor("shop.*", "20 days", false)}, []policyfile.Floor{floor("shop.*", "40 days", false)}
		only := func(floors []policyfile.Floor, file string) *change.Change {
			t.Helper()
			changes, err := w.under(floors, file)
			must(t, err)
			return &changes[0]
		}
		must(t, w.write(only(nil, file("30 days"))))
		c := only(low, file("30 days"))
		if c.Kind != change.Changed || !strings.Contains(c.Diff(), "+ floor: 20 days of shop.sessions for HGB 257") {
			t.Errorf("a floor that is new: %s\n%s", c.Kind, c.Diff())
		}
		must(t, w.write(c))
		if got := valueOn[string](t, w.admin, `select spec #>> '{floor,0,reason}' from lapse.policy where version = 2`); got != "HGB 257" {
			t.Errorf("on record is %q", got)
		}
		if c := only(low, file("30 days")); c.Kind != change.Unchanged || c.Unfit {
			t.Errorf("the same again: %s, unfit %t", c.Kind, c.Unfit)
		}
		p := w.inForce()[0]
		for floors, want := range map[*policyfile.Floor]int{&low[0]: 0, &high[0]: 1} {
			if below, err := resolve.BelowFloor(t.Context(), w.admin, &p, []policyfile.Floor{*floors}); err != nil || len(below) != want {
				t.Errorf("below %s: %q, %v", floors.Least, below, err)
			}
		}
		if c := only(high, file("30 days")); c.Kind != change.Unchanged || !c.Unfit || !strings.Contains(c.Diff(), "kept for at least 40 days") {
			t.Errorf("a raised floor: %s, unfit %t\n%s", c.Kind, c.Unfit, c.Diff())
		}
		if c := only(high, file("30 days", "    state: paused")); c.Kind != change.Restated || c.ToState != schemas.Paused {
			t.Errorf("a pause below a floor: %+v", c)
		}
		if c := only(high, file("35 days")); c.Kind != change.Changed || !c.Unfit {
			t.Errorf("longer, and still below: %s, unfit %t", c.Kind, c.Unfit)
		} else {
			must(t, w.write(c))
		}
		if c := only(high, file("41 days")); c.Kind != change.Changed || c.Unfit || !strings.Contains(c.Diff(), "~ floor: 20 days of shop.sessions for HGB 257 → 40 days") {
			t.Errorf("long enough: %s, unfit %t\n%s", c.Kind, c.Unfit, c.Diff())
		}
		for name, text := range map[string]string{"shorter": file("34 days"), "to be armed": file("35 days", "    state: armed")} {
			if _, err := w.under(high, text); err == nil || !strings.Contains(err.Error(), "kept for at least 40 days") {
				t.Errorf("%s, below a floor: %v", name, err)
			}
		}
	})
}
