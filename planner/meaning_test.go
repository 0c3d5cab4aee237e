package planner

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/run"
	"lapse/schemas"
)

// A policy goes on when an enum that it reads gets one more label, and the next apply takes the label down without a question. Where a
// label is another one, nothing goes until somebody says yes to a new version, whatever else the file changes.
func TestAnotherMeaningOfWhereAsksAsAnotherWhereDoes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create type state as enum ('open', 'kept')`,
			`create table orders (id bigint primary key, closed_at timestamptz not null, status state)`)
		file := policyText("shop.orders", "closed_at", "30 days", `    where: "status::text <> 'kept'"`, isArmed)
		_ = w.armed(file)
		if again := w.apply(file); again[0].Kind != change.Unchanged {
			t.Errorf("the same once more is %s", again[0].Diff())
		}
		w.do(`alter type state add value 'fresh' before 'kept'`)
		added := w.apply(file)[0]
		if added.Kind != change.Changed || added.MoreFallDue || added.HeldVersion != 0 || !strings.Contains(added.Diff(), "open, kept, fresh") {
			t.Errorf("a label more is %s", added.Diff())
		}
		w.opens()
		if got := w.heldNow(); got != "p 2 armed" {
			t.Errorf("after a label more is in force: %s", got)
		}
		p := w.inForce()[0]
		b := w.lease(p, w.open(&p))
		w.do(`alter type state rename value 'fresh' to 'stale'`)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateColumns)
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		seen, err := run.Inspect(t.Context(), w.exec, &p)
		must(t, err)
		if !strings.Contains(survey.Trouble, "status (labels or casts of shop.state") || len(seen.Changed) != 1 || !strings.HasPrefix(seen.Changed[0], "shop.orders: status (") {
			t.Errorf("the survey says %q, doctor %q", survey.Trouble, seen.Changed)
		}
		for _, next := range []string{file, strings.Replace(file, "30 days", "60 days", 1), strings.Replace(file, isArmed, isArmed+"\n"+otherBatch, 1)} {
			changes, err := w.difference(next, false)
			must(t, err)
			if c := changes[0]; !c.MoreFallDue || c.HeldVersion == 0 || !strings.Contains(c.Diff(), "open, kept, fresh → ") {
				t.Errorf("with another label it is %s", c.Diff())
			}
		}
		w.apply(file)
		if got := w.heldNow(); got != "p 3 observing, 3 held back" {
			t.Errorf("applied again is in force: %s", got)
		}
	})
}

// What is a database's own after all: a label of an enum that no column has would be changed unseen.
func TestAnEnumOfNoColumnIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create type state as enum ('open', 'kept')`, `create domain states as state[]`,
			`create table orders (id bigint primary key, closed_at timestamptz not null, status state, all_of state[], some_of states, note text)`)
		for where, fits := range map[string]bool{
			`note::shop.state < 'kept'`: false, `note = any ('{open}'::shop.state[]::text[])`: false, `'open'::shop.state::text = note`: false,
			`status < 'kept'`: true, `note::shop.state = status`: true, `'open' = any (all_of)`: true, `'open'::shop.state = any (some_of)`: true,
			`all_of @> '{open}'::shop.state[]`: true, `status in ('open', 'kept')`: true,
		} {
			_, err := w.difference(policyText("shop.orders", "closed_at", "30 days", `    where: "`+where+`"`), false)
			if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "shop.state") {
				t.Errorf("%s: %v", where, err)
			}
		}
	})
}
