package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/index"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
	"lapse/planner/survey"
)

// printed are the statements of warnings, as they would be printed.
func printed(warnings []string) (statements []string) {
	for _, line := range strings.Split(strings.Join(warnings, "\n"), "\n") {
		for _, begin := range []string{"create index ", "alter index ", "drop index "} {
			if at := strings.Index(line, begin); at >= 0 {
				statements = append(statements, line[at:])
			}
		}
	}
	return statements
}

// advised resolves a policy of a table, and returns the warnings.
func (w *world) advised(table string) *resolve.Resolved {
	w.t.Helper()
	r, err := resolve.Resolve(w.t.Context(), w.admin, policyfile.Policy{
		Name: "p", Table: table, Expire: expiry.Entry{"column": "at", "after": "1 day"}, Every: "1 hour", Terms: policyfile.Terms{Batch: 1},
	}, apply.Fit)
	must(w.t, err)
	return r
}

const indexTables = `
	create table plain (id int primary key, at timestamptz);
	create table "Pl""ain $1" (id int primary key, at timestamptz);
	create table ranges (id int, at timestamptz, primary key (id, at)) partition by range (at);
	create table ranges_old partition of ranges for values from (minvalue) to ('2020-01-01');
	create table ranges_new partition of ranges for values from ('2020-01-01') to (maxvalue);
	create table "Deep" (id int, r text, at timestamptz, primary key (id, r)) partition by list (r);
	create table "Deep eu" partition of "Deep" for values in ('eu') partition by hash (id);
	create table "Deep eu 0" partition of "Deep eu" for values with (modulus 2, remainder 0);
	create table "Deep eu 1" partition of "Deep eu" for values with (modulus 2, remainder 1);
	create table "Deep us" partition of "Deep" for values in ('us');
	create table served (id int, at timestamptz, primary key (id, at)) partition by range (at);
	create table served_old partition of served for values from (minvalue) to ('2020-01-01');
	create table served_new partition of served for values from ('2020-01-01') to (maxvalue);
	create index on served_old (at, id);
	create table child (n int, plain int references plain on delete cascade) partition by list (n);
	create table child_0 (plain int, n int);
	alter table child attach partition child_0 for values in (0);
	create table child_1 partition of child for values in (1) partition by list (plain);
	create table child_1_0 partition of child_1 for values in (0);
	create table child_of_one (n int, plain int references plain on delete set null);
	insert into ranges select n, now() from generate_series(1, 100) n;
	insert into plain select n, now() from generate_series(1, 100) n;`

// Every statement is run as it is printed; after each, somebody may be interrupted, and what is printed then goes on from there.
func TestTheStatementsForAnIndexRunAsTheyArePrinted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		w.do(strings.ReplaceAll(indexTables, "\n", " "), pgx.QueryExecModeSimpleProtocol)
		for table, want := range map[string]int{
			"shop.plain": 1 + 7 + 1, `shop."Pl""ain $1"`: 1, "shop.ranges": 5, `shop."Deep"`: 9, "shop.served": 1,
		} {
			if got := len(printed(w.advised(table).Warnings)); got != want {
				t.Errorf("%s: %d statements, want %d: %q", table, got, want, w.advised(table).Warnings)
			}
			for n := 0; ; n++ {
				statements := printed(w.advised(table).Warnings)
				if len(statements) == 0 {
					break
				}
				if n > 20 {
					t.Fatalf("%s: it never ends: %q", table, statements)
				}
				w.do(statements[0])
			}
			if r := w.advised(table); len(r.Warnings) > 0 || r.Index == "" {
				t.Errorf("%s: index %q, warnings %q", table, r.Index, r.Warnings)
			}
		}
		if n := value[int](w, `select count(*) from pg_index where not indisvalid`); n > 0 {
			t.Errorf("%d indexes are not valid", n)
		}
		w.do(`create table "Deep asia" partition of "Deep" for values in ('asia')`)
		if r := w.advised(`shop."Deep"`); len(r.Warnings) > 0 {
			t.Errorf("a partition made later: %q", r.Warnings)
		}
		// All at once, and after a statement that left an index which is not valid.
		w.do(`create table again (id int, at timestamptz, primary key (id, at)) partition by range (at)`)
		w.do(`create table again_all partition of again default`)
		statements := printed(w.advised("shop.again").Warnings)
		w.do(statements[0])
		w.do(`insert into again values (1, now()), (1, now() - interval '1 hour')`)
		name := strings.Fields(statements[1])[3]
		if err := runSQL(w.owner, `create unique index concurrently `+name+` on shop.again_all (id)`); err == nil {
			t.Error("want an index that is not valid")
		}
		for _, sql := range printed(w.advised("shop.again").Warnings) {
			w.do(sql)
		}
		if r := w.advised("shop.again"); len(r.Warnings) > 0 {
			t.Errorf("after a leftover: %q", r.Warnings)
		}
	})
}

// shaped is a kind whose index is what a test says.
type shaped struct {
	*expiry.Age
	index expiry.Index
}

func (s shaped) Index() expiry.Index { return s.index }

func TestAPartialIndexOrOneOfAnExpressionServesWhereItHasEveryDueRow(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table docs (id int primary key, at timestamptz, "Body" jsonb, state text, n int)`)
		w.do(`create index on docs (at, id) where n > 3`) // never serves
		const body = `(("Body" -> 'a') ->> 'b')::bigint`
		for _, c := range []struct {
			index         expiry.Index
			made          string
			serves, whole bool
		}{
			{expiry.Index{Column: "at"}, `(at, id) where at is not null`, true, true},
			{expiry.Index{Column: "at"}, `(at) where at is not null`, true, false},
			{expiry.Index{Column: "at"}, `(at, id) where state = 'closed'`, false, false},
			{expiry.Index{Column: "at", Predicate: "state = 'closed' and n is not null"}, `(at, id) where state = 'closed'`, true, true},
			{expiry.Index{Column: "at", Predicate: "(state = 'closed') AND (n IS NOT NULL)"}, `(at, id) where n is not null and state = 'closed' and at is not null`, true, true},
			{expiry.Index{Column: "at", Predicate: "state = 'closed'"}, `(at, id) where state = 'closed' or n = 1`, false, false},
			{expiry.Index{Column: "at", Predicate: "(state = 'closed') or (n = 1)"}, `(at, id) where state = 'closed'`, false, false},
			{expiry.Index{Column: "at", Predicate: "state = 'Closed'"}, `(at, id) where state = 'closed'`, false, false},
			{expiry.Index{Expression: body}, `((` + body + `), id)`, true, true},
			{expiry.Index{Expression: body}, `((("Body" -> 'a' ->> 'c')::bigint), id)`, false, false},
			{expiry.Index{Expression: body, Predicate: body + " > 0"}, `((` + body + `), id) where ` + body + ` > 0`, true, true},
			{expiry.Index{Expression: `"Body" operator(pg_catalog.->>) 'x'::text`}, `(("Body" ->> 'x'), id)`, true, true},
			{expiry.Index{Expression: `pg_catalog.lower(t."state")`}, `(lower(state), id)`, true, true},
			{expiry.Index{Expression: `lower(state)`}, `(upper(state), id)`, false, false},
		} {
			d := &functions.Definition{Table: "shop.docs", Expire: shaped{&expiry.Age{}, c.index}, Key: []functions.KeyColumn{{Name: "id", Plain: true}}}
			leaves := []database.Relation{{OID: w.oid("docs"), Name: "shop.docs"}}
			w.do(`create index probe on docs ` + c.made)
			found, err := index.Find(t.Context(), w.admin, d, leaves, index.AdvisedPrefix)
			must(t, err)
			if serves, whole := found.Name != "", found.None == nil && found.Better == nil; serves != c.serves || whole != c.whole {
				t.Errorf("%+v by %s: serves %t, whole %t: %+v", c.index, c.made, serves, whole, found)
			}
			w.do(`drop index probe`)
			// What is advised serves.
			found, err = index.Find(t.Context(), w.admin, d, leaves, index.AdvisedPrefix)
			must(t, err)
			advice := found.Warnings
			if found.Better != nil {
				advice = append(advice, found.Better.String())
			}
			for _, sql := range printed(advice) {
				w.do(strings.ReplaceAll(sql, "t.", ""))
			}
			found, err = index.Find(t.Context(), w.admin, d, leaves, index.AdvisedPrefix)
			must(t, err)
			if found.Name == "" || len(found.Warnings) > 0 || found.Better != nil {
				t.Errorf("%+v: what was advised does not serve: %q", c.index, found.Warnings)
			} else {
				w.do(`drop index ` + found.Name)
			}
		}
	})
}

// Rows that never expire are not in an index that is made for a ttl of each row's own, or for a number, and PostgreSQL finds the due ones by it.
//
//lapse:long
func TestAnIndexThatIsMadeLeavesOutRowsThatNeverExpire(t *testing.T) {
	t.Parallel()
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table ttl (id int primary key, at timestamptz, keep interval)`, `create table epoch (id int primary key, v bigint)`,
			`create table document (id int primary key, v jsonb)`, `create table whole (id int primary key, at timestamptz, keep int)`, `create index on whole (at, id)`,
			`insert into ttl select n, now() - interval '2 days', case when n % 1000 = 0 then '1 day'::interval end from generate_series(1, 50000) n`,
			`insert into epoch select n, case when n % 1000 = 0 then n end from generate_series(1, 50000) n`,
			`insert into document select n, case when n % 1000 = 0 then jsonb_build_object('at', n) else '{"at": "never"}' end from generate_series(1, 50000) n`,
			`insert into whole select n, now() - interval '2 days', case when n % 10 = 0 then 1 end from generate_series(1, 100) n`)
		file := `policies:
  - {name: ttl, table: shop.ttl, expire: {column: at, ttl_column: keep}, index: create}
  - {name: epoch, table: shop.epoch, expire: {column: v, epoch: s}, index: create}
  - {name: document, table: shop.document, expire: {column: v, epoch: s, path: at}, index: create}
  - {name: whole, table: shop.whole, expire: {column: at, ttl_column: keep}, index: create}
`
		parsed, err := policyfile.Parse("f", []byte(file))
		must(t, err)
		for _, p := range parsed.Policies {
			r, err := resolve.Resolve(t.Context(), w.admin, p, apply.Fit)
			must(t, err)
			ttl, is := r.Definition.Expire.(*expiry.TTL)
			if is && ttl.Sparse != (p.Name == "ttl") {
				t.Errorf("%s asks for rows with a ttl: %t", p.Name, ttl.Sparse)
			}
			for _, step := range r.Build {
				w.do(step.SQL)
			}
			again, err := resolve.Resolve(t.Context(), w.admin, p, apply.Fit)
			must(t, err)
			if len(again.Build) > 0 || again.Index == "" || again.Definition.Digest() != r.Definition.Digest() {
				t.Errorf("%s: with its index it is another definition, or lacks it still: %v", p.Name, again.Build)
			}
		}
		w.do(`analyze`)
		w.apply(file)
		for _, p := range w.inForce() {
			s, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			due := int64(50)
			if p.Name == "whole" {
				due = 10
			} else if rows := value[float64](w, `select reltuples from pg_class where oid = $1::text::regclass`, s.Index); s.Method != survey.IndexOrder || rows > 500 {
				t.Errorf("%s is found by %s %s, which has %v rows:\n%s", p.Name, s.Method, s.Index, rows, s.Explain)
			}
			if s.Due != due {
				t.Errorf("%s: %d rows are due, want %d", p.Name, s.Due, due)
			}
		}
	})
}
