package executor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/hold"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// holdSession is a session that places holds, as the command does.
func holdSession(t testing.TB, db *pgtest.DB) *site.Session {
	t.Helper()
	config, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(config.RuntimeParams, map[string]string{"role": roles.Owner})
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &site.Session{Conn: conn, Roles: roles, Log: slog.New(slog.DiscardHandler)}
}

// byKeys and byWhere are what is held.
func byKeys(table string, keys ...string) hold.Request {
	r := hold.Request{Table: table}
	for _, key := range keys {
		r.Keys = append(r.Keys, strings.Split(key, ","))
	}
	return r
}

func byWhere(table, where string) hold.Request {
	return hold.Request{Table: table, Where: where}
}

// placeHold places a hold and wants no warning.
func placeHold(t testing.TB, s *site.Session, request hold.Request) schemas.HoldID {
	t.Helper()
	placed, err := holds.Place(t.Context(), s, holds.Order{Request: request, Matter: "M-1", Reason: "a test"})
	if err != nil || len(placed.Warnings) > 0 {
		t.Fatalf("hold %+v: %v, warnings %q", request, err, placed.Warnings)
	}
	return placed.ID
}

// heldCase is a table with due rows, what is held, and which of its rows are to stay.
type heldCase struct {
	ddl   []string // {} is the case's table
	holds []hold.Request
	stay  string // SQL over the case's table: the rows that stay, by id; '-' for none
}

// heldCases are all made in one database. Every row is due. The table's columns are id and at, and more.
var heldCases = map[string]heldCase{
	"keys": {
		ddl:   []string{"create table {} (id bigint primary key, at timestamptz)", "fill"},
		holds: []hold.Request{byKeys("public.{}", "3", "007", "40")}, stay: "3 7",
	},
	"text": {
		ddl:   []string{`create table {} (id bigint primary key, at timestamptz, "a%s'" text)`, "fill", `update {} set "a%s'" = case id when 4 then 'it''s \ "x", $lapse$ $1' when 5 then '' when 6 then null else id::text end`},
		holds: []hold.Request{{Table: "public.{}", Columns: []string{"a%s'"}, Keys: [][]string{{`it's \ "x", $lapse$ $1`}, {""}, {`1') or true --`}}}}, stay: "4 5",
	},
	"domain": {
		ddl:   []string{"create domain {}_d as varchar(5) check (value <> 'x')", "create table {} (id bigint primary key, at timestamptz, c {}_d)", "fill", "update {} set c = id::text"},
		holds: []hold.Request{{Table: "public.{}", Columns: []string{"c"}, Keys: [][]string{{"2"}, {"333333333"}}}}, stay: "2",
	},
	"composite": {
		ddl:   []string{"create table {} (region text, id bigint, at timestamptz, primary key (region, id))", "fill, region=, case when n < 5 then 'a,b' else 'c' end"},
		holds: []hold.Request{{Table: "public.{}", Keys: [][]string{{"a,b", "2"}, {"c", "3"}, {"c", "5"}}}}, stay: "2 5",
	},
	"where": {
		ddl:   []string{"create table {} (id bigint primary key, at timestamptz, c text)", "fill", "update {} set c = case when id < 3 then 'eu' when id < 9 then 'us' end"},
		holds: []hold.Request{byWhere("public.{}", "c = 'eu'")}, stay: "1 2 9 10", // unknown is held
	},
	"several": {
		ddl:   []string{"create table {} (id bigint primary key, at timestamptz)", "fill"},
		holds: []hold.Request{byKeys("public.{}", "1"), byWhere("public.{}", "id > 8"), byKeys("public.{}", "1", "2")}, stay: "1 2 9 10",
	},
	"all": {
		ddl:   []string{"create table {} (id bigint primary key, at timestamptz)", "fill"},
		holds: []hold.Request{byWhere("public.{}", "true")}, stay: "1 2 3 4 5 6 7 8 9 10",
	},
	"tree": {
		ddl: []string{
			"create table {} (id bigint, at timestamptz, r int not null, primary key (id, r)) partition by list (r)",
			"create table {}_0 partition of {} for values in (0)", "create table {}_12 partition of {} for values in (1, 2) partition by list (r)",
			"create table {}_1 partition of {}_12 for values in (1)", "create table {}_2 (at timestamptz, gone int, r int not null, id bigint not null, primary key (id, r))",
			"alter table {}_2 drop column gone", "alter table {}_12 attach partition {}_2 for values in (2)", "fill, r=, n % 3",
		},
		holds: []hold.Request{byWhere("public.{}_0", "id < 5"), byWhere("public.{}_12", "id > 7"), byKeys("public.{}", "5,2", "6,1")}, stay: "3 5 8 10",
	},
	"child": {
		ddl: []string{
			"create table {} (id bigint primary key, at timestamptz)", "fill",
			"create table {}_c (id bigint primary key, up bigint references {} on delete cascade, c text)", "create index on {}_c (up)",
			"insert into {}_c select n, n / 2 + 1, n::text from generate_series(1, 18) n", "create table {}_n (up bigint references {} on delete set null, c text)",
			"insert into {}_n values (10, '4')",
		},
		holds: []hold.Request{{Table: "public.{}_c", Columns: []string{"c"}, Keys: [][]string{{"4"}, {"5"}}}, byKeys("public.{}_c", "18"), byWhere("public.{}_n", "c = '4'")}, stay: "3 10",
	},
	"grandchild": {
		ddl: []string{
			"create table {} (id bigint primary key, at timestamptz)", "fill",
			"create table {}_c (a bigint, b text, up bigint references {} on delete cascade, primary key (a, b))", "create index on {}_c (up)",
			"create table {}_p (id bigint, r int, a bigint, b text, foreign key (a, b) references {}_c on delete cascade) partition by list (r)",
			"create table {}_p0 partition of {}_p for values in (0)", "create table {}_p1 partition of {}_p for values in (1)", "create index on {}_p (a, b)",
			"insert into {}_c select n, 'x', n from generate_series(1, 10) n", "insert into {}_p select n, n % 2, n, 'x' from generate_series(1, 10) n",
		},
		holds: []hold.Request{byWhere("public.{}_p", "id = 4"), byWhere("public.{}_p1", "id in (7, 8)")}, stay: "4 7",
	},
	"circle": { // comment 9 answers 4, which answers 2, which answers 1; each is on its own row
		ddl: []string{
			"create table {} (id bigint primary key, at timestamptz)", "fill",
			"create table {}_c (id bigint primary key, post bigint references {} on delete cascade, up bigint references {}_c on delete cascade)",
			"create index on {}_c (post)", "create index on {}_c (up)",
			"insert into {}_c select n, n, nullif(n / 2, 0) from generate_series(1, 10) n",
		},
		holds: []hold.Request{byKeys("public.{}_c", "9")}, stay: "1 2 4 9",
	},
	"partitions": {
		ddl: []string{
			"create table {} (id bigint, at timestamptz, r int, primary key (id, r)) partition by list (r)",
			"create table {}_0 partition of {} for values in (0)", "create table {}_1 partition of {} for values in (1)", "fill, r=, n % 2",
			"create table {}_a (id bigint, r int, foreign key (id, r) references {} on delete cascade)", "create index on {}_a (id, r)",
			"create table {}_b (id bigint, r int, foreign key (id, r) references {}_1 on delete cascade)", "create index on {}_b (id, r)",
			"insert into {}_a select n, n % 2 from generate_series(1, 10) n", "insert into {}_b select n, 1 from generate_series(1, 10, 2) n",
		},
		holds: []hold.Request{byWhere("public.{}_a", "id = 6"), byWhere("public.{}_b", "id = 9")}, stay: "6 9",
	},
}

// makeHeld makes a case's table, with ten rows that are due where its statements say so, and returns its policy's entry.
func makeHeld(t testing.TB, db *pgtest.DB, name string, c heldCase) string {
	t.Helper()
	for _, sql := range c.ddl {
		if columns, filled := strings.CutPrefix(sql, "fill"); filled {
			more, values, _ := strings.Cut(columns, "=")
			sql = fmt.Sprintf("insert into {} (id, at%s) select n, now() - interval '1 year' + n * interval '1 hour'%s from generate_series(1, 10) n; create index on {} (at, id)", more, values)
		}
		owned(t, db, strings.ReplaceAll(sql, "{}", name))
	}
	return policy(name, "public."+name, "batch: 3")
}

// ids are a table's, in one line.
func ids(t testing.TB, db *pgtest.DB, table string) string {
	t.Helper()
	return one[string](t, db, "select coalesce(string_agg(id::text, ' ' order by id), '-') from "+table)
}

// surveyed is what a plan says of a policy.
func surveyed(t testing.TB, db *pgtest.DB, name schemas.PolicyName) string {
	t.Helper()
	conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
	list, err := record.LoadInForce(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := survey.Ask{}.InForce(t.Context(), conn, find(list, name))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d due, %d held%s", s.Due, s.Held, s.Trouble)
}

// One database, all that a hold can be on, and what a cascade deletes.
//
//lapse:long
func TestARowThatAHoldIsOnStaysWhateverThePolicySays(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := holdSession(t, db)
		var entries []string
		var names []schemas.PolicyName
		for name, c := range heldCases {
			entries = append(entries, makeHeld(t, db, "h_"+name, c))
			names = append(names, schemas.PolicyName("h_"+name))
		}
		arm(t, db, policies(entries...))
		for name, c := range heldCases {
			for _, request := range c.holds {
				request.Table = strings.ReplaceAll(request.Table, "{}", "h_"+name)
				placeHold(t, s, request)
			}
		}
		once(t, newExecutor(t, db))
		for name, c := range heldCases {
			if got := ids(t, db, "h_"+name); got != c.stay {
				t.Errorf("%s: rows %s stay, want %s", name, got, c.stay)
			}
		}
		if got := one[int](t, db, "select count(*) from h_child_c c where up in (3, 10)"); got != 3 {
			t.Errorf("%d rows of the child stay with theirs, want 3", got)
		}
		// A plan counts them apart, by the same condition over the whole table.
		for name, c := range heldCases {
			if got := surveyed(t, db, schemas.PolicyName("h_"+name)); got != fmt.Sprintf("0 due, %d held", len(strings.Fields(c.stay))) {
				t.Errorf("%s: the plan says %s", name, got)
			}
		}
		// They are no trouble: nothing is put aside, and the next run finds nothing.
		for _, p := range once(t, newExecutor(t, db), names...).Policies {
			if p.Deleted != 0 || p.Outcome != Finished {
				t.Errorf("the next run of %s: %+v", p.Policy, p)
			}
		}
		// When the holds are over, the rows are deleted.
		all, err := holds.Read(t.Context(), s.Conn, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if err := holds.Release(t.Context(), s, h.ID, 0, "it is over"); err != nil {
				t.Fatal(err)
			}
		}
		once(t, newExecutor(t, db), names...)
		for name := range heldCases {
			if got := ids(t, db, "h_"+name); got != "-" {
				t.Errorf("%s: rows %s stay after the release", name, got)
			}
		}
	})
}
