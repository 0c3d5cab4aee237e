package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/survey"
	"lapse/schemas"
)

// expressions are instants over visits, with the SQL of a row that the promise calls due.
var expressions = []struct {
	text      string
	immutable bool
	warning   string
}{
	{`seen + ttl`, false, "no index can hold"},
	{`(seen at time zone 'UTC' + interval '1 mon') at time zone 'UTC'`, true, "for which the expression raises"},
	{`seen`, true, ""},
	{`case when kept then null else seen end`, true, ""},
	{`coalesce(closed, 'infinity')`, true, ""},
	{`least(seen, closed)`, true, ""},
	{`to_timestamp((j ->> 'at')::bigint)`, true, "for which the expression raises"},
	{`case when j ->> 'at' ~ '^[0-9]{1,10}$' then to_timestamp((j ->> 'at')::bigint) + interval '1 day' end`, false, "no index can hold"},
	{`closed at time zone 'Europe/Berlin' at time zone 'Europe/Berlin'`, true, "for which the expression raises"},
}

const visits = `
	create table visits (id bigint primary key, seen timestamptz, ttl interval, kept boolean, closed timestamptz, j jsonb);
	insert into visits
	select n, (array[now() - n * interval '10 days', now() + n * interval '1 day', null, '-infinity', 'infinity', '4714-11-24 00:00:00+00 BC', '2000-02-29'])[n % 7 + 1],
	       (array[interval '20 days', '0', null, '3 years'])[n % 4 + 1], (array[true, false, null])[n % 3 + 1],
	       (array[now() - interval '1 day', now() + interval '1 day', null, '-infinity', 'infinity'])[n % 5 + 1],
	       (array['{"at": 100}', '{"at": "1000"}', '{}', '{"at": 99999999999}', '{"at": null}'])[n % 5 + 1]::jsonb
	  from generate_series(1, 300) n`

// What goes is what the expression names an instant for that has come: no NULL, no infinity, nothing before 4713 BC.
func TestAnExpressionDeletesTheRowsWhoseInstantHasCome(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, visits)
		w.do(`set timezone = 'UTC'`)
		file := "policies:\n"
		for i, x := range expressions {
			w.do(fmt.Sprintf(`create table v%d (like visits including all)`, i))
			w.do(fmt.Sprintf(`insert into v%d table visits`, i))
			file += fmt.Sprintf("  - name: p%[1]d\n    table: shop.v%[1]d\n    expire: {expression: %[2]q}\n    state: armed\n    where: kept is not true\n", i, x.text)
		}
		_ = w.armed(file)
		for i, x := range expressions {
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			if got := p.Definition.Expire.(*expiry.Expression).Immutable; got != x.immutable {
				t.Errorf("%s: immutable %v, want %v", x.text, got, x.immutable)
			}
			if got := p.Definition.Expire.Index().Warning; !strings.Contains(got, x.warning) || x.warning == "" && got != "" {
				t.Errorf("%s: the warning is %q, want %q", x.text, got, x.warning)
			}
			run := w.open(&p)
			due := fmt.Sprintf(`kept is not true and isfinite(%[1]s) and (%[1]s) >= '4713-01-01 BC' and (%[1]s) <= '%[2]s'`, x.text, run.Cutoff.Format(time.RFC3339Nano))
			want := value[int64](w, `select count(*) from visits where `+due)
			survey, err := surveyInForce(t.Context(), w.exec, &p, run.Cutoff)
			must(t, err)
			total := w.deleteAll(p, run, 7)
			if survey.Due != want || total.Deleted != want || survey.Trouble != "" || want == 0 {
				t.Errorf("%s: the survey counts %d (%s), %d were deleted, and %d are due", x.text, survey.Due, survey.Trouble, total.Deleted, want)
			}
			if left := value[int](w, fmt.Sprintf(`select count(*) from v%d where %s`, i, due)); left != 0 {
				t.Errorf("%s: %d due rows are left", x.text, left)
			}
		}
	})
}

// An expression that raises for a row ends the batch with PostgreSQL's SQLSTATE; nothing of it stays. With a case around it the
// row is left alone.
func TestAnExpressionThatRaisesEndsTheBatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table notes (id bigint primary key, at text)`, `insert into notes values (1, '2020-01-01'), (2, 'soon'), (3, '2020-01-02')`)
		file := "policies:\n  - {name: p, table: shop.notes, expire: {expression: \"%s\"}, state: armed}\n"
		p := w.armed(fmt.Sprintf(file, "at::timestamptz"))
		b := w.lease(p, w.open(&p))
		_, err := w.call(b, nil)
		wantState(t, err, "22007")
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if survey.Trouble != "counting fails with SQLSTATE 22007" || value[int](w, `select count(*) from notes`) != 3 {
			t.Errorf("the survey says %+v", survey)
		}
		w.do(`delete from notes where id = 2`)
		if got, err := w.call(b, nil); err != nil || got.Deleted != 2 {
			t.Errorf("once the row is fixed: %+v, %v", got, err)
		}
	})
}

// An index on the expression is found, and advice for one runs as it is printed.
func TestAnExpressionIsFoundByItsIndex(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, visits)
		file := "policies:\n  - {name: p, table: shop.visits, expire: {expression: \"case when kept then null else seen end\"}, where: \"j ->> 'at' = '100'\"}\n"
		changes := w.apply(file)
		_, sql, found := strings.Cut(strings.Join(changes[0].Warnings, "\n"), ": create index")
		if !found {
			t.Fatalf("the warnings are %q", changes[0].Warnings)
		}
		w.do("create index" + strings.TrimSuffix(strings.Split(sql, "\n")[0], ";"))
		w.do(`insert into visits (id, seen) select n, now() + interval '1 day' from generate_series(1000, 20000) n`)
		w.do(`analyze visits`)
		changes, err := w.difference(file, false)
		must(t, err)
		if len(changes[0].Warnings) > 0 || changes[0].Resolved.Index == "" {
			t.Errorf("with the index the warnings are %q", changes[0].Warnings)
		}
		p := w.inForce()[0]
		seen, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if seen.Method == survey.Sequential || seen.Index == "" {
			t.Errorf("rows are found by %s, index %q\n%s", seen.Method, seen.Index, seen.Explain)
		}
	})
}
