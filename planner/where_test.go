package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/survey"
	"lapse/schemas"
)

// orders are past rows, with every state there is.
const orders = `
	create type state as enum ('open', 'closed');
	create domain email as text check (value ~ '@');
	create table orders (id bigint primary key, closed_at timestamptz not null, status text, flag boolean, amount numeric, s state, tags text[],
	  mail email, "Mixed Case" int, j jsonb);
	create index on orders (closed_at, id);
	insert into orders
	select n, now() - interval '1 year', (array['closed', 'open', null])[n % 3 + 1], (array[true, false, null])[n / 3 % 3 + 1],
	       nullif(n % 7, 3), (array['open', 'closed', null])[n % 3 + 1]::state, case n % 4 when 0 then null when 1 then '{}'::text[] else array['a', n::text] end,
	       case when n % 5 > 0 then 'a' || n % 5 || '@b' end, nullif(n % 6, 0), case n % 3 when 0 then '{"gone": true}'::jsonb when 1 then '{}' end
	  from generate_series(1, 200) n`

func ordersPolicy(more ...string) string {
	return policyText("shop.orders", "closed_at", "30 days", more...)
}

// wheres are conditions over orders, true of some rows, false of others, and NULL for the rest.
var wheres = []string{
	`status = 'closed'`, `status <> 'closed' or flag`, `not flag`, `amount / 2 > 1.5 and status is distinct from 'open'`, `s = 'closed'`,
	`'a' = any (tags)`, `cardinality(tags) = 0`, `mail in ('a1@b', 'a2@b')`, `"Mixed Case" between 2 and 4`, `(j ->> 'gone')::boolean`,
	`case when flag then status = 'open' end`, `nullif(flag, false)`, `null`, `closed_at + interval '1 mon' < '2100-01-01'`,
}

// What goes is what the condition is true of, not what it is NULL for, and nothing else.
func TestWhereDeletesTheRowsThatItIsTrueOf(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, orders)
		file := "policies:\n"
		for i, where := range wheres {
			w.do(fmt.Sprintf(`create table o%d (like orders including all)`, i))
			w.do(fmt.Sprintf(`insert into o%d table orders`, i))
			file += fmt.Sprintf("  - name: p%[1]d\n    table: shop.o%[1]d\n    expire: {column: closed_at, after: 30 days}\n    state: armed\n%[2]s\n", i, whereLine(where))
		}
		_ = w.armed(file)
		for i, where := range wheres {
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			gone := int64(value[int](w, `select count(*) from orders where `+where))
			total := w.deleteAll(p, w.open(&p), 7)
			if survey.Due != gone || total.Deleted != gone || survey.Trouble != "" {
				t.Errorf("%s: the survey counts %d (%s), %d were deleted, and it is true of %d", where, survey.Due, survey.Trouble, total.Deleted, gone)
			}
			if wrong := value[int](w, fmt.Sprintf(`select count(*) from orders a where (%s) is true and id in (select id from o%[2]d)
				or (%[1]s) is not true and id not in (select id from o%[2]d)`, where, i)); wrong != 0 {
				t.Errorf("%s: %d rows are wrongly there or gone", where, wrong)
			}
		}
	})
}

func whereLine(where string) string { return fmt.Sprintf("    where: %q", where) }

// Adding a part to where makes fewer rows due; anything else that is not the same may make more due.
func TestWhereMayMakeMoreFallDueUnlessItOnlyAsksForMore(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, orders)
		for _, c := range []struct {
			from, to string
			more     bool
		}{
			{"", "flag", false},
			{"flag", "", true},
			{"flag", " flag ", false},
			{"flag", "not flag", true},
			{"flag", "flag and status = 'closed'", false},
			{"status = 'closed'", "flag and status='closed' and amount between 1 and 3", false},
			{"flag and status = 'closed'", "status = 'closed' and amount > 1 and flag", false},
			{"flag and status = 'closed'", "flag and status = 'open'", true},
			{"flag and status = 'closed'", "flag", true},
			{"flag", "flag or status = 'closed'", true},
			{"flag", "(flag and status = 'closed') is not true", true},
			{"status = 'a AND b'", "status = 'a AND b' and flag", false},
		} {
			lines := func(where string) string {
				if where == "" {
					return ordersPolicy()
				}
				return ordersPolicy(whereLine(where))
			}
			w.apply(lines(c.from))
			changes, err := w.difference(lines(c.to), false)
			must(t, err)
			if got := changes[0]; got.MoreFallDue != c.more || got.Kind != change.Changed && c.from != c.to {
				t.Errorf("from %q to %q: %s, more %v, want %v\n%s", c.from, c.to, got.Kind, got.MoreFallDue, c.more, got.Diff())
			}
		}
	})
}

// What where says is on record: a policy that keeps it is lengthened and paused without its table, and one that changes it is
// not.
func TestWhereIsKeptFromTheRecordWhenTheTableIsGone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, orders)
		before := w.armed(ordersPolicy("    state: armed", "    where: flag"))
		w.do(`drop table orders`)
		longer := strings.Replace(ordersPolicy("    where: flag"), "30 days", "60 days", 1)
		changes := w.apply(longer)
		if c := changes[0]; !c.Unfit || c.Kind != change.Changed {
			t.Errorf("lengthening says %+v", c)
		}
		if p := w.inForce()[0]; p.Definition.Where == nil || p.Definition.Where.SQL != `t."flag"` || p.Version != before.Version+1 {
			t.Errorf("in force is %+v", p.Definition.Where)
		}
		for _, other := range []string{ordersPolicy(), ordersPolicy("    where: not flag"), ordersPolicy("    where: flag and status = 'x'")} {
			if _, err := w.difference(other, false); err == nil || !strings.Contains(err.Error(), "there is no table") {
				t.Errorf("another where of a table that is gone: %v", err)
			}
		}
		paused := w.apply(longer + "    state: paused\n")
		if paused[0].ToState != schemas.Paused {
			t.Errorf("pausing says %+v", paused[0])
		}
	})
}

// A batch, a run and a survey refuse a table where a column that where reads is another one.
func TestAColumnOfWhereThatIsAnotherOneStopsThePolicy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, orders)
		p := w.armed(ordersPolicy("    state: armed", "    where: status = 'closed' and flag"))
		b := w.lease(p, w.open(&p))
		w.do(`alter table orders rename flag to was; alter table orders add flag boolean default true`)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateColumns)
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if !strings.Contains(survey.Trouble, "columns") {
			t.Errorf("the survey says %+v", survey)
		}
		w.apply(ordersPolicy("    where: status = 'closed' and flag"))
		if v := w.inForce()[0]; v.Version != p.Version+1 || v.State != schemas.Observing {
			t.Errorf("applied again it is version %d, %s", v.Version, v.State)
		}
	})
}

// A mistake in where is said with its place in the file.
func TestAMistakeInWhereHasItsPlace(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, orders)
		_, err := w.difference("policies:\n  - name: p\n    table: shop.orders\n    expire: {column: closed_at, after: 30 days}\n    where: \"statsu = 'closed'\"\n", false)
		if err == nil || !strings.Contains(err.Error(), `policies.yaml:5:12: policy p: where: there is no column "statsu"; did you mean status?`) {
			t.Errorf("got %v", err)
		}
	})
}

// A policy that is not applied is planned with its where and its expression, by a superuser and by the table's owner.
func TestWhereIsPlannedBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "", orders)
		for _, login := range []string{"postgres", b.app} {
			b.login = login
			for _, expire := range []string{"{column: closed_at, after: 30 days}", "{expression: \"closed_at + interval '30 days'\"}"} {
				s := b.survey("policies:\n  - {name: p, table: shop.orders, expire: "+expire+", where: \"s = 'closed' and mail is not null\"}\n", survey.Ask{AtMost: 1000})
				if want := valueOn[int64](t, b.admin, `select count(*) from shop.orders where s = 'closed' and mail is not null`); s.Due != want || s.Trouble != "" {
					t.Errorf("%s, as %s: %+v, want %d", expire, login, s, want)
				}
			}
		}
	})
}

// An index with only the rows that meet where serves a statement that asks for them, and no other. Rows that do not meet where
// are then not checked, however many there are.
func TestAnIndexOfTheRowsThatMeetWhereIsUsed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		file := func(table, after, where string) string {
			return strings.Replace(policyText("shop."+table, "closed_at", after, whereLine(where), "    state: armed"), "name: p", "name: "+table, 1)
		}
		for i, after := range []string{"30 days", "1 mon"} { // every candidate is due, or need not be
			table := fmt.Sprintf("tickets%d", i)
			w.do(`create table ` + table + ` (id bigint primary key, closed_at timestamptz, status text)`)
			w.do(fmt.Sprintf(`create index by_status%d on %s (closed_at, id) where status = 'closed'`, i, table))
			w.do(`insert into ` + table + ` select n, now() - interval '60 days', case when n % 2000 = 0 then 'closed' else 'open' end
			        from generate_series(1, 20000) n`)
			w.do(`analyze ` + table)
			_ = w.armed(file(table, after, `status = 'closed'`))
			p := w.named(schemas.PolicyName(table))
			s, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			if s.Due != 10 || s.Index != fmt.Sprintf("by_status%d", i) || s.Method == survey.Sequential {
				t.Errorf("%s: %d rows are due, found by %s %s", after, s.Due, s.Method, s.Index)
			}
			if got := w.deleteAll(p, w.open(&p), 100); got.Deleted != 10 {
				t.Errorf("%s: %d rows were deleted", after, got.Deleted)
			}
			// With half of where in the index, the other half could leave out any number of rows that the batch goes through.
			changes, err := w.difference(file(table, after, `status = 'closed' and id > 5`), false)
			must(t, err)
			if r := changes[0].Resolved; r.Index != "" || r.Definition.Where.Indexed {
				t.Errorf("%s: %s serves", after, r.Index)
			}
		}
	})
}
