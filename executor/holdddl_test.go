package executor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/hold"
	"lapse/schemas"
)

// ddlCase is what somebody does between the placing of holds and a run. {} is the case's table of ten due rows: id, at, c (the id as text)
// and d (as int). Each step of after is a transaction of the owner's, but for those that begin with a word of ddlStep.
type ddlCase struct {
	from   int // the oldest major
	before []string
	more   []string // further keys of the policy
	also   []string // further tables, each with a policy that runs after that of {}
	holds  []hold.Request
	after  []string
	left   string // SQL; "" is the ids of {}
	want   string
	stops  string // what a policy says
	faulty bool   // lapse hold list finds something
}

const tenIDs = "1 2 3 4 5 6 7 8 9 10"

// childOf makes a table of ten rows that refer to {}, also due.
func childOf(clause string) string {
	return `create table {}_c (id bigint primary key, at timestamptz, up bigint default 0 references {} ` + clause + `, s text);
		create index on {}_c (up); create index on {}_c (at, id); insert into {}_c select n, now() - interval '1 year', n, n::text from generate_series(1, 10) n`
}

// twoTrees are a held table {}_p with partition {}_p1 of ten rows, and {}_q.
const twoTrees = `create table {}_p (id bigint, r int, {}_x text, e text, at timestamptz, primary key (id, r)) partition by list (r);
	create table {}_p1 partition of {}_p for values in (1); insert into {}_p select n, 1, n, 'e', now() - interval '1 year' from generate_series(1, 10) n;
	create table {}_q (like {}_p including all) partition by list (r); create index on {}_q (at, id, r)`

const childrenLeft = "select string_agg(id || ':' || coalesce(up::text, ''), ' ' order by id) from {}_c"

// changed is what a policy says of a hold that speaks of other columns.
const changed = "are not those that hold"

var ddlCases = map[string]ddlCase{
	// A deletion that sets a column which a hold reads would end the hold: the row that it refers to stays too.
	"set null empties the column of the keys": {
		before: []string{childOf("on delete set null")}, also: []string{"{}_c"},
		holds: []hold.Request{{Table: "public.{}_c", Columns: []string{"up"}, Keys: [][]string{{"3"}}}}, left: childrenLeft, want: "3:3",
	},
	"set default changes what a condition reads": {
		before: []string{"insert into {} (id, at) values (0, now())", childOf("on delete set default")}, also: []string{"{}_c"},
		holds: []hold.Request{byWhere("public.{}_c", "up = 3")}, left: childrenLeft, want: "3:3",
	},
	"set null of a child's child": {
		before: []string{
			"create table {}_m (id bigint primary key references {} on delete cascade); insert into {}_m select id from {}",
			strings.ReplaceAll(childOf("on delete set null"), "references {} ", "references {}_m "),
		}, also: []string{"{}_c"},
		holds: []hold.Request{byWhere("public.{}_c", "up is not distinct from 3")}, left: childrenLeft, want: "3:3",
	},
	"set null of a column that no hold reads": {
		before: []string{childOf("on delete set null")}, holds: []hold.Request{byKeys("public.{}_c", "3")}, want: "-",
	},
	"set null of what a held column is generated of": {
		before: []string{childOf("on delete set null"), "alter table {}_c add linked boolean generated always as (up is not null) stored"}, also: []string{"{}_c"},
		holds: []hold.Request{byWhere("public.{}_c", "linked and s = '3'")}, left: childrenLeft, want: "3:3",
	},
	"set null of what a virtual column is generated of": {
		from: 18, before: []string{childOf("on delete set null"), "alter table {}_c add linked text generated always as (up || 'x')"}, also: []string{"{}_c"},
		holds: []hold.Request{{Table: "public.{}_c", Columns: []string{"linked"}, Keys: [][]string{{"3x"}}}}, left: childrenLeft, want: "3:3",
	},
	"set null of one column of two": {
		from: 15, before: []string{
			"alter table {} add unique (d, id)", "create table {}_c (id bigint primary key, a int, b bigint, foreign key (a, b) references {} (d, id) on delete set null (b)); create index on {}_c (a, b)",
			"insert into {}_c select n, n, n from generate_series(1, 10) n",
		},
		holds: []hold.Request{{Table: "public.{}_c", Columns: []string{"a"}, Keys: [][]string{{"3"}}}, {Table: "public.{}_c", Columns: []string{"b"}, Keys: [][]string{{"4"}}}}, want: "4",
	},
	"set null in partitions": {
		before: []string{
			"create table {}_c (id bigint, up bigint references {} on delete set null, r int) partition by list (r); create table {}_c1 partition of {}_c for values in (1)",
			"insert into {}_c select n, n, 1 from generate_series(1, 10) n",
		},
		holds: []hold.Request{{Table: "public.{}_c1", Columns: []string{"up"}, Keys: [][]string{{"3"}}}}, want: "3",
	},
	"set null in another owner's table": {
		before: []string{childOf("on delete set null"), "super alter table {}_c owner to lapse_owner"}, want: tenIDs,
		holds: []hold.Request{{Table: "public.{}_c", Columns: []string{"up"}, Keys: [][]string{{"3"}}}}, stops: "grant select, update (up) on public.{}_c to",
	},

	// What a hold's columns say.
	"a generated column with another expression": {
		from: 17, before: []string{"alter table {} add g text generated always as (c || 'x') stored"}, holds: []hold.Request{byWhere("public.{}", "g = '3x'")},
		after: []string{"alter table {} alter column g set expression as (c || 'y')"}, want: tenIDs, stops: changed, faulty: true,
	},
	"keys of a virtual column with another expression": {
		from: 18, before: []string{"alter table {} add g text generated always as (c || 'x')"}, holds: []hold.Request{{Table: "public.{}", Columns: []string{"g"}, Keys: [][]string{{"3x"}}}},
		after: []string{"alter table {} alter column g set expression as (c || 'y')"}, want: tenIDs, stops: changed, faulty: true,
	},
	"columns of a detached partition change places": {
		before: []string{twoTrees}, also: []string{"{}_q"}, holds: []hold.Request{byWhere("public.{}_p", "{}_x = '3'")},
		after: []string{
			"alter table {}_p detach partition {}_p1", "alter table {}_p1 rename {}_x to y; alter table {}_p1 rename e to {}_x; alter table {}_p1 rename y to e",
			"alter table {}_q attach partition {}_p1 for values in (1)", "apply",
		},
		left: "{}_q", want: tenIDs, stops: "the columns of public.{}_p1 are not those", faulty: true,
	},
	"columns of a table that a hold moved from change places": {
		before: []string{"create table {}_n (like {} including all); alter table {} add e text default 'e'"}, holds: []hold.Request{byWhere("public.{}", "c = '3'")},
		after: []string{"move public.{}_n", "alter table {} rename c to x; alter table {} rename e to c"}, want: tenIDs, stops: "the columns of public.{} are not those", faulty: true,
	},
	"a column of a type": {
		before: []string{"create type {}_t as (id bigint, at timestamptz, c text)", "create table {}_o of {}_t (primary key (id))", "insert into {}_o select id, at, c from {}"},
		also:   []string{"{}_o"}, holds: []hold.Request{byWhere("public.{}_o", "c = '3'")},
		after: []string{"alter type {}_t rename attribute c to e cascade"}, left: "{}_o", want: tenIDs, stops: changed, faulty: true,
	},
	"another primary key": {
		holds: []hold.Request{byKeys("public.{}", "3")},
		after: []string{"alter table {} drop constraint {}_pkey; alter table {} alter c set not null; alter table {} add primary key (c)", "apply"}, want: "3",
	},
	"keys in other spellings": {
		before: []string{"alter table {} add n numeric; update {} set n = id + 0.50", "alter table {} add z timestamptz; update {} set z = '2024-03-01 00:00+00'::timestamptz + id * interval '1 day'"},
		holds: []hold.Request{
			{Table: "public.{}", Columns: []string{"n"}, Keys: [][]string{{"3.5000"}}},
			{Table: "public.{}", Columns: []string{"z"}, Keys: [][]string{{"2024-03-06 05:00:00+05"}}},
		}, want: "3 5",
	},

	// Where the rows are.
	"attached by a transaction that is older than the hold": {
		before: []string{twoTrees}, also: []string{"{}_q"}, holds: []hold.Request{byWhere("public.{}_p", "{}_x = '3'")},
		after: []string{
			"create table {}_p2 partition of {}_p for values in (2)", "insert into {}_p2 select n, 2, n, 'e', now() - interval '1 year' from generate_series(1, 10) n",
			"old alter table {}_p detach partition {}_p2; alter table {}_q attach partition {}_p2 for values in (2)", "apply",
		}, left: "{}_q", want: "3",
	},
	"merged into one partition": {
		before: []string{twoTrees}, also: []string{"{}_p"}, holds: []hold.Request{byWhere("public.{}_p", "{}_x = '3'")},
		after: []string{"create table {}_p0 (like {}_p including all); insert into {}_p0 select * from {}_p1; drop table {}_p1; alter table {}_p attach partition {}_p0 for values in (0, 1)", "apply"},
		left:  "{}_p", want: "3",
	},
	"attached deeper": {
		before: []string{twoTrees, "create table {}_q1 partition of {}_q for values in (1, 2) partition by list (r)"}, also: []string{"{}_q"}, holds: []hold.Request{byKeys("public.{}_p1", "3,1")},
		after: []string{"alter table {}_p detach partition {}_p1; alter table {}_q1 attach partition {}_p1 for values in (1)", "apply"}, left: "{}_q", want: "3",
	},
	"a held table becomes a partition": {
		before: []string{twoTrees, "create table {}_h (like {}_p including all); insert into {}_h select * from {}_p"}, also: []string{"{}_q"}, holds: []hold.Request{byWhere("public.{}_h", "{}_x = '3'")},
		after: []string{"alter table {}_q attach partition {}_h for values in (1)", "apply"}, left: "{}_q", want: "3",
	},
	"a child's partition with a foreign key of its own": {
		before: []string{
			"create table {}_k (id bigint, r int, up bigint references {} on delete cascade) partition by list (r); create table {}_k1 partition of {}_k for values in (1); create index on {}_k1 (up)",
			"insert into {}_k select n, 1, n from generate_series(1, 10) n",
		},
		holds: []hold.Request{byWhere("public.{}_k", "id = 3")}, after: []string{"alter table {}_k detach partition {}_k1", "apply"}, want: "3",
	},
	"four levels, partitions between": {
		before: []string{
			"create table {}_l (id bigint, r int default 1, up bigint references {} on delete cascade, primary key (id, r)) partition by list (r); create table {}_l1 partition of {}_l for values in (1)",
			"create table {}_m (id bigint primary key, a bigint, r int default 1, foreign key (a, r) references {}_l on delete cascade)",
			"create table {}_n (id bigint, r int default 1, up bigint references {}_m on delete cascade, w text) partition by list (r); create table {}_n1 partition of {}_n default",
			"insert into {}_l select n, 1, n from generate_series(1, 10) n; insert into {}_m select n, n from generate_series(1, 10) n; insert into {}_n select n, 1, n, n from generate_series(1, 10) n",
		},
		holds: []hold.Request{byWhere("public.{}_n", "w = '3'"), byKeys("public.{}_m", "5")}, want: "3 5",
	},
	"a foreign key is made again, deferrable": {
		before: []string{childOf("on delete cascade")}, holds: []hold.Request{byKeys("public.{}_c", "3")},
		after: []string{"alter table {}_c drop constraint {}_c_up_fkey; alter table {}_c add constraint other foreign key (up) references {} on delete cascade deferrable initially deferred", "apply"}, want: "3",
	},

	// What has which name.
	"renamed, in another schema": {
		before: []string{"super create schema {}_s; grant all on schema {}_s to public"}, holds: []hold.Request{byKeys("public.{}", "3")},
		after: []string{"alter table {} rename to {}_new; alter table {}_new set schema {}_s", "apply {}_s.{}_new"}, left: "{}_s.{}_new", want: "3",
	},
	"a view takes the name": {
		holds: []hold.Request{byKeys("public.{}", "3")}, after: []string{"alter table {} rename to {}_base; create view {} as select * from {}_base", "apply public.{}_base"}, left: "{}_base", want: "3",
	},
	"a type takes the name": {
		holds: []hold.Request{byKeys("public.{}", "3")}, after: []string{"alter table {} rename to {}_base; create type {} as (x int)", "apply public.{}_base"}, left: "{}_base", want: "3",
	},
	"swapped by two renames": {
		holds: []hold.Request{byKeys("public.{}", "3")},
		after: []string{"create table {}_new (like {} including all); insert into {}_new select * from {}", "alter table {} rename to {}_old; alter table {}_new rename to {}", "apply"},
		want:  tenIDs, stops: "lapse hold move", faulty: true,
	},
	"made again under its name": {
		holds: []hold.Request{byKeys("public.{}", "3")},
		after: []string{"create table {}_new (like {} including all); insert into {}_new select * from {}; drop table {}; alter table {}_new rename to {}", "apply"},
		want:  tenIDs, stops: "public.{} is not the table", faulty: true,
	},
	"its partition is swapped": {
		before: []string{twoTrees}, also: []string{"{}_p"}, holds: []hold.Request{byKeys("public.{}_p1", "3,1")},
		after: []string{"alter table {}_p detach partition {}_p1; alter table {}_p1 rename to {}_old; create table {}_p1 partition of {}_p for values in (1); insert into {}_p1 select * from {}_old", "apply"},
		left:  "{}_p", want: tenIDs, stops: "public.{}_p1 is not the table", faulty: true,
	},
	// Placed again and released, as the message says, the policy goes on.
	"released after its columns changed": {
		holds: []hold.Request{{Table: "public.{}", Columns: []string{"d"}, Keys: [][]string{{"3"}}}},
		after: []string{"alter table {} alter column d type bigint", "again", "release"}, want: "3",
	},
	"released after its name was given away": {
		holds: []hold.Request{{Table: "public.{}", Columns: []string{"d"}, Keys: [][]string{{"3"}}}},
		after: []string{"alter table {} rename to {}_old; create table {} (like {}_old including all); alter table {} alter d type bigint; insert into {} select * from {}_old", "apply", "again", "release"}, want: "3",
	},
	"one of two holds is released": {
		holds: []hold.Request{byWhere("public.{}", "id in (3, 4)"), byKeys("public.{}", "4", "5")}, after: []string{"release"}, want: "3 4",
	},

	// Who runs, and what runs beside.
	"a trusted trigger deletes held rows": {
		before: []string{
			"create table {}_n (id bigint primary key); insert into {}_n select n from generate_series(1, 10) n; grant all on {}_n to public",
			"create function {}_f() returns trigger language plpgsql as $f$ begin delete from public.{}_n where id = old.id; return old; end $f$",
			"create trigger t after delete on {} for each row execute function {}_f()",
		},
		more: []string{"triggers: trusted"}, holds: []hold.Request{byKeys("public.{}_n", "3")}, left: "{}_n", want: tenIDs, stops: "rows of public.{}_n were deleted beside those",
	},
	"a trusted trigger deletes other children": {
		before: []string{
			childOf("on delete cascade"), "insert into {} (id, at) values (12, now()); insert into {}_c (id, up, s) values (12, 12, 'held')",
			"create function {}_f() returns trigger language plpgsql as $f$ begin delete from public.{}_c where s = 'held'; return old; end $f$",
			"create trigger t after delete on {} for each row execute function {}_f()",
		},
		more: []string{"triggers: trusted"}, holds: []hold.Request{byWhere("public.{}_c", "s = 'held'")}, left: "{}_c where id = 12", want: "12", stops: "rows of public.{}_c were deleted beside those",
	},
	"a trusted trigger leaves held tables alone": {
		before: []string{
			childOf("on delete cascade"), "create table {}_n (id bigint primary key); grant all on {}_n to public",
			"create function {}_f() returns trigger language plpgsql as $f$ begin insert into public.{}_n values (old.id); return old; end $f$",
			"create trigger t after delete on {} for each row execute function {}_f()",
		},
		more: []string{"triggers: trusted"}, holds: []hold.Request{byKeys("public.{}_n", "3"), byKeys("public.{}_c", "4")}, want: "4",
	},
	"a trusted trigger on partitions of a held table": {
		before: []string{
			`drop table {}; create table {} (id bigint, at timestamptz, d int, primary key (id, d)) partition by list (d); create index on {} (at, id, d);
			create table {}_a partition of {} for values in (0); create table {}_b partition of {} for values in (1);
			create table {}_d partition of {} for values in (2); create table {}_e partition of {} for values in (3)`,
			"insert into {} select n, now() - interval '1 year', n % 4 from generate_series(1, 10) n",
			"create function {}_f() returns trigger language plpgsql as $f$ begin return old; end $f$", "create trigger t before delete on {} for each row execute function {}_f()",
		},
		more: []string{"triggers: trusted"}, holds: []hold.Request{byWhere("public.{}", "id in (3, 4)")}, want: "3 4",
	},
	"set null in the table itself": {
		before: []string{"alter table {} add up bigint references {} on delete set null; update {} set up = 3 where id = 7; update {} set up = 4 where id = 8; create index on {} (up)"},
		holds:  []hold.Request{{Table: "public.{}", Columns: []string{"up"}, Keys: [][]string{{"3"}}}}, want: "3 7",
	},
	"row security hides held children": {
		before: []string{childOf("on delete cascade")}, holds: []hold.Request{byKeys("public.{}_c", "3")},
		after: []string{"alter table {}_c enable row level security; alter table {}_c force row level security; create policy n on {}_c using (false)"}, want: tenIDs, stops: "have a superuser run: alter role",
	},
	"row security hides held rows": {
		holds: []hold.Request{byKeys("public.{}", "3")},
		after: []string{"alter table {} enable row level security; alter table {} force row level security; create policy n on {} using (id <> 3)"}, want: tenIDs, stops: "have a superuser run: alter role",
	},
	"a rule keeps held children": {
		before: []string{childOf("on delete cascade")}, holds: []hold.Request{byKeys("public.{}_c", "3")},
		after: []string{"create rule r as on delete to {}_c do instead nothing"}, want: tenIDs, stops: "?",
	},
	"an operator on the search path": {
		holds: []hold.Request{{Table: "public.{}", Columns: []string{"c"}, Keys: [][]string{{"3"}}}},
		after: []string{"super create schema {}_s; create function {}_s.no(text, text) returns bool language sql immutable as 'select false'; " +
			"create operator {}_s.= (leftarg = text, rightarg = text, function = {}_s.no); alter role lapse_executor in database {db} set search_path = {}_s, pg_catalog"}, want: "3",
	},
}

// ddlStep does one step of a case.
func (c *ddlCase) ddlStep(t *testing.T, db *pgtest.DB, s *site.Session, old *pgx.Conn, last schemas.HoldID, file func(table string) string, step string) {
	t.Helper()
	word, rest, _ := strings.Cut(step, " ")
	var err error
	switch word {
	case "super":
		db.Exec(t, rest)
	case "old": // a transaction that began before the hold
		_, err = old.Exec(t.Context(), rest+"; commit")
	case "apply":
		arm(t, db, file(rest))
	case "move":
		err = holds.Move(t.Context(), s, last, rest, "a test")
	case "release":
		err = holds.Release(t.Context(), s, last, 0, "a test")
	default:
		owned(t, db, step)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run makes the case's tables, places its holds, does what is done and runs the policies.
func (c *ddlCase) run(t *testing.T, db *pgtest.DB, name string) {
	fill := func(text string) string { return strings.NewReplacer("{}", name, "{db}", db.Name).Replace(text) }
	owned(t, db, fill(`create table {} (id bigint primary key, at timestamptz, c text, d int); create index on {} (at, id);
		insert into {} select n, now() - interval '1 year', n::text, n from generate_series(1, 10) n`))
	s, old := holdSession(t, db), db.Connect(t)
	for _, step := range c.before {
		c.ddlStep(t, db, s, old, 0, nil, fill(step))
	}
	names := []schemas.PolicyName{schemas.PolicyName(name)}
	for _, table := range c.also {
		names = append(names, schemas.PolicyName(fill(table)))
	}
	file := func(table string) string {
		if table == "" {
			table = "public." + name
		}
		entries := []string{policy(name, table, c.more...)}
		for _, also := range names[1:] {
			entries = append(entries, policy(string(also), "public."+string(also)))
		}
		return policies(entries...)
	}
	arm(t, db, file(""))
	if _, err := old.Exec(t.Context(), "begin; set local role "+appRole+"; select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	place := func() (last schemas.HoldID) {
		for _, h := range c.holds {
			h.Table, h.Where = fill(h.Table), fill(h.Where)
			placed, err := holds.Place(t.Context(), s, holds.Order{Request: h, Matter: "M-1", Reason: "a test"})
			if err != nil {
				t.Fatal(err)
			}
			last = placed.ID
		}
		return last
	}
	last := place()
	for _, step := range c.after {
		if step == "again" {
			place()
			continue
		}
		c.ddlStep(t, db, s, old, last, file, fill(step))
	}
	c.compare(t, db, s, names, fill)
}

// compare runs the policies and compares what they leave, and what they and the list of holds say.
func (c *ddlCase) compare(t *testing.T, db *pgtest.DB, s *site.Session, names []schemas.PolicyName, fill func(string) string) {
	faults, err := holds.Faults(t.Context(), s)
	if err != nil || len(faults) > 0 != (c.faulty || strings.HasPrefix(c.stops, "grant") || strings.HasPrefix(c.stops, "have a superuser") && len(faults) > 0) {
		t.Errorf("the faults are %q: %v", faults, err)
	}
	said := ""
	for _, name := range names {
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{name}); err != nil {
			said += err.Error()
		}
	}
	if said == "" != (c.stops == "") || c.stops != "?" && !strings.Contains(said, fill(c.stops)) {
		t.Errorf("the policies say %q, want %q", said, fill(c.stops))
	}
	left := c.left
	if left == "" {
		left = "{}"
	}
	if !strings.HasPrefix(left, "select ") {
		left = "select string_agg(id::text, ' ' order by id) from " + left
	}
	if got := one[string](t, db, "select coalesce(("+fill(left)+"), '-')"); got != c.want {
		t.Errorf("rows %s stay, want %s", got, c.want)
	}
	inForce, err := holds.Read(t.Context(), s.Conn, false)
	if err != nil {
		t.Error(err)
	}
	for _, h := range inForce {
		if err := holds.Release(t.Context(), s, h.ID, 0, "the case is over"); err != nil {
			t.Error(err)
		}
	}
}

// Whatever the owner of tables makes of them, a hold does not come to match nothing: what it was on stays held, or the policy stops and says
// what to do. What does not concern a hold stops nothing.
//
//lapse:long
func TestAHoldIsOnItsRowsWhateverBecomesOfTheirTables(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		major := one[int](t, db, "select current_setting('server_version_num')::int / 10000")
		n := 0
		for what, c := range ddlCases {
			if n++; major >= c.from {
				t.Run(what, func(t *testing.T) { c.run(t, db, fmt.Sprintf("w%d", n)) })
			}
		}
	})
}
