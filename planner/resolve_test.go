package planner

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
)

// unfit are policies that the database refuses, each for one reason.
var unfit = []struct{ name, setup, policy, want string }{
	{"no such table", ``, `table: shop.nope`, "4:12: policy p: there is no table shop.nope in this database"},
	{"a table with a typing mistake", `create table "Wide Sessions" (id int primary key, last_seen timestamptz)`, `table: shop.sesions`, "; did you mean shop.sessions?"},
	{"a table of another schema", ``, `table: public.sessions`, "; did you mean shop.sessions?"},
	{"a table without its quotes", ``, `table: shop.wide_sessions`, `; did you mean shop."Wide Sessions"?`},
	{"no schema", ``, `table: sessions`, "write for instance shop.sessions"},
	{"too many parts", ``, `table: a.b.c`, "more than a schema and a table"},
	{"no name at all", ``, `table: "a b"`, "is no table name"},
	{"a view", `create view v as select 1 as id, now() as last_seen`, `table: shop.v`, "is not a table"},
	{"a materialized view", `create materialized view m as select 1 as id, now() as last_seen`, `table: shop.m`, "is not a table"},
	{"an unlogged table", `create unlogged table u (id int primary key, last_seen timestamptz)`, `table: shop.u`, "alter table shop.u set logged"},
	{"a partition", `create table r (id int, last_seen timestamptz, primary key (id)) partition by range (id); create table r1 partition of r default`, `table: shop.r1`, "name its root, shop.r"},
	{"a parent", `create table par (id int primary key, last_seen timestamptz); create table chi () inherits (par)`, `table: shop.par`, "declarative partitioning"},
	{"a child", `create table par2 (id int primary key, last_seen timestamptz); create table chi2 (primary key (id)) inherits (par2)`, `table: shop.chi2`, "declarative partitioning"},
	{"a table of the catalog", ``, `table: lapse.run`, "belongs to the system"},
	{"a system table", ``, `table: pg_catalog.pg_class`, "belongs to the system"},
	{"no such column", ``, `expire: {column: last_sen, after: 30 days}`, `did you mean last_seen?`},
	{"a column without its quotes", `alter table sessions add column "usedAt" timestamptz`, `expire: INTERVAL '30 days' ON usedAt`, `has no column "usedat"; did you mean "usedAt"?`},
	{"a column of another type", ``, `expire: {column: note, after: 30 days}`, `is of type text`},
	{"a duration without a unit", ``, `latitude: "30"`, `has no unit`},
	{"a negative duration", ``, `expire: {column: last_seen, after: -1 day}`, `must not be negative`},
	{"a duration that nobody knows", ``, `expire: {column: last_seen, after: soon}`, `5:40: policy p: "soon" is not a duration`},
	{"a duration before the calendar", ``, `expire: {column: last_seen, after: 7000 years}`, `is before the first instant`},
	{"an interval too short", ``, `every: 99 milliseconds`, `at least 100 milliseconds`},
	{"a latitude that nobody knows", ``, `latitude: soon`, `is not a duration`},
	{"a zone for an instant", ``, `expire: {column: last_seen, after: 30 days, zone: Europe/Berlin}`, `has a zone of its own`},
	{"no primary key", `create table k0 (id int, last_seen timestamptz)`, `table: shop.k0`, "has no primary key"},
	{"a deferrable primary key", `create table k1 (id int primary key deferrable, last_seen timestamptz)`, `table: shop.k1`, "is deferrable"},
	{"replica identity full", `create table k2 (id int primary key, last_seen timestamptz); alter table k2 replica identity full`, `table: shop.k2`, "replica identity is full"},
	{"replica identity nothing", `create table k3 (id int primary key, last_seen timestamptz); alter table k3 replica identity nothing`, `table: shop.k3`, "replica identity is nothing"},
	{"replica identity dropped", `create table k4 (id int primary key, u int not null unique, last_seen timestamptz); alter table k4 replica identity using index k4_u_key; alter table k4 drop constraint k4_u_key`, `table: shop.k4`, "is gone or invalid"},
	{"a leaf of another identity", `create table k5 (id int, u int not null, last_seen timestamptz, primary key (id)) partition by range (id); create table k5a partition of k5 default; create unique index k5u on k5a (u); alter table k5a replica identity using index k5u`, `table: shop.k5`, "give them the same replica identity"},
	{"a leaf without identity", `create table k6 (id int, last_seen timestamptz) partition by range (id); create table k6a partition of k6 (primary key (id)) for values from (0) to (1); create table k6b partition of k6 default`, `table: shop.k6`, "table shop.k6 cannot be published: it has no primary key"},
	{"a trigger", `create function f() returns trigger language plpgsql as 'begin return old; end'; create table t1 (id int primary key, last_seen timestamptz); create trigger "A" before delete on t1 for each row execute function f()`, `table: shop.t1`, `alter table shop.t1 disable trigger "A"`},
	{"a root's trigger", `create table t2 (id int primary key, last_seen timestamptz) partition by range (id); create table t2a partition of t2 default; create trigger tr after delete on t2 for each row execute function f()`, `table: shop.t2`, `trigger tr on shop.t2 would run`},
	{"a child's trigger", `create table t3 (id int primary key, last_seen timestamptz); create table t3c (p int references t3 on delete cascade); create trigger tr after delete on t3c for each row execute function f()`, `table: shop.t3`, `trigger tr on shop.t3c would run`},
	{"a rule", `create table t4 (id int primary key, last_seen timestamptz); create rule ru as on delete to t4 do also select 1`, `table: shop.t4`, `rule ru on shop.t4 would run`},
	{"a foreign key back", `create table f1 (id int primary key, last_seen timestamptz, up int references f1 on delete cascade)`, `table: shop.f1`, `foreign key f1_up_fkey of shop.f1 leads back`},
	{"a foreign key back by way of another", `create table f2 (id int primary key, last_seen timestamptz); create table f3 (id int primary key references f2 on delete cascade); alter table f2 add constraint back foreign key (id) references f3 on delete cascade not valid`, `table: shop.f2`, `foreign key back of shop.f2 leads back`},
	{"a foreign key back by way of the root", `create table f4 (id int primary key, last_seen timestamptz, up int) partition by range (id); create table f4a partition of f4 default; alter table f4 add constraint loop foreign key (up) references f4 on delete cascade`, `table: shop.f4`, `foreign key loop of shop.f4 leads back`},
	{"a name that ends a function", `create table n1 ("a$lapse$b" int primary key, last_seen timestamptz)`, `table: shop.n1`, `rename it`},
	{"a name of two lines", "create table \"n2\nx\" (id int primary key, last_seen timestamptz)", `table: "shop.\"n2\nx\""`, `rename it`},
}

func TestATableThatIsUnfitIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table fit (id int primary key, last_seen timestamptz)`)
		for _, c := range unfit {
			if c.setup != "" {
				_, err := w.owner.PgConn().Exec(t.Context(), c.setup).ReadAll()
				must(t, err)
			}
			lines := map[string]string{"table": "shop.sessions", "expire": "{column: last_seen, after: 30 days}"}
			key, v, _ := strings.Cut(c.policy, ": ")
			lines[key] = v
			file := "policies:\n\n  - name: p\n    table: " + lines["table"] + "\n    expire: " + lines["expire"] + "\n"
			for _, other := range []string{"every", "latitude"} {
				if lines[other] != "" {
					file += "    " + other + ": " + lines[other] + "\n"
				}
			}
			beside := "  - {name: beside, table: shop.fit, expire: {column: last_seen, after: 30 days}}\n" // of several tables some is asked at once
			for _, file := range []string{file, file + beside} {
				_, err := w.difference(file, false)
				var all yamldoc.Errors
				if !errors.As(err, &all) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "policies.yaml:") {
					t.Errorf("%s: got %v, want %q", c.name, err, c.want)
				}
			}
		}
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.policy`); n != 0 {
			t.Errorf("%d policies were made", n)
		}
	})
}

func TestAllThatIsWrongInAllPoliciesIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions, `create table hits (id int, at timestamptz)`)
	tx, err := w.admin.Begin(t.Context()) // an error of PostgreSQL's inside must not end the caller's transaction
	must(t, err)
	file, err := policyfile.Parse("f", []byte(`policies:
  - {name: a, table: "shop . sessions x", expire: {column: last_seen, after: soon}, every: never}
  - {name: b, table: shop.hits, expire: {column: att, after: 9999 years}}
  - {name: c, table: shop.sessions, expire: {column: last_seen, after: 1 day}}
  - {name: d, table: 'shop."sessions"', expire: {column: last_seen, after: 2 days}}
`))
	must(t, err)
	_, err = change.Difference(t.Context(), tx, file, false, apply.Fit, nil)
	var all yamldoc.Errors
	if !errors.As(err, &all) || len(all) != 6 {
		t.Errorf("got %d complaints: %v", len(all), err)
	}
	for i, want := range []string{"2:22:", "2:78:", "2:92:", "3:22:", "3:50:", "5:22:"} {
		if i < len(all) && !strings.Contains(all[i].Error(), "f:"+want) {
			t.Errorf("complaint %d is %v, want it at %s", i, all[i], want)
		}
	}
	must(t, tx.Commit(t.Context()))
}

func TestAFitTableIsResolvedToWhatTheExecutorNeeds(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		w.do(`create index events_by_age on events (last_seen, id, region)`)
		w.do(`create table notes (id int primary key, event bigint, region text, foreign key (event, region) references events on delete cascade) `)
		w.do(`create table marks (id int, note int references notes on delete cascade, primary key (id)) partition by hash (id)`)
		w.do(`create table marks_0 partition of marks for values with (modulus 1, remainder 0)`)
		w.do(`create table stars (note int references notes on delete set null)`)
		for _, child := range []string{"notes (region, event)", "marks (note, id)", "stars (note)"} {
			w.do(`create index on ` + child)
		}
		r, err := resolve.Resolve(t.Context(), w.admin, policyfile.Policy{
			Name: "p", Table: "SHOP.Events", Expire: expiry.Entry{"column": "last_seen", "after": "P1M2DT3H"}, Every: "5 minutes", Terms: policyfile.Terms{Batch: 10, Latitude: "24:00"},
		}, apply.Fit)
		must(t, err)
		if r.Definition.Table != "shop.events" || r.TableOID != w.oid("events") || r.TableOwner != w.app {
			t.Errorf("table %s, oid %d, owner %s", r.Definition.Table, r.TableOID, r.TableOwner)
		}
		if want := (expiry.Interval{Months: 1, Days: 2, Microseconds: 3 * 3600 * 1e6}); r.Definition.Expire.(*expiry.Age).After != want {
			t.Errorf("after %+v, want %+v", r.Definition.Expire, want)
		}
		if got := fmt.Sprint(database.Names(r.Leaves)); got != "[shop.events_eu shop.events_us shop.events_rest_all]" {
			t.Errorf("leaves %s", got)
		}
		if got := slices.Sorted(slices.Values(database.Names(r.Cascades))); fmt.Sprint(got) != "[shop.marks_0 shop.notes]" {
			t.Errorf("cascades %v", got)
		}
		if got := fmt.Sprint(database.Names(r.Published)); got != "[shop.events shop.marks shop.notes]" {
			t.Errorf("published %s", got)
		}
		if got := fmt.Sprint(r.Definition.Key); got != "[{id 1 bigint true} {region 2 text true}]" {
			t.Errorf("key %s", got)
		}
		if r.Index == "" || len(r.Warnings) != 0 {
			t.Errorf("index %q, warnings %q", r.Index, r.Warnings)
		}
		if r.Policy.Latitude != "24:00:00" {
			t.Errorf("latitude %s", r.Policy.Latitude)
		}
	})
}

// A policy that comes from no file, of an importer for instance, is told what is wrong with it by its keys.
func TestAPolicyOfNoFileIsToldItsProblemsByKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, 18), sessions)
	_, err := resolve.Resolve(t.Context(), w.admin, policyfile.Policy{
		Name: "p", Table: "shop.sessions", Expire: expiry.Entry{"column": "seen_last", "after": "1 dya"}, Every: "often", Terms: policyfile.Terms{Latitude: "-"},
		Action: policyfile.Action{Kind: policyfile.ActionSoft, Column: "nowhere"},
	}, apply.Fit)
	var problems policyfile.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v, want problems", err)
	}
	keys := map[string]bool{}
	for _, p := range problems {
		keys[p.Key] = true
		if p.Text == "" || !strings.Contains(err.Error(), p.Key+": "+p.Text) {
			t.Errorf("%+v is not in %v", p, err)
		}
	}
	if got := fmt.Sprint(slices.Sorted(maps.Keys(keys))); got != "[action.soft.column every expire.after expire.column latitude]" {
		t.Errorf("problems with %s: %v", got, err)
	}
}

func TestAnIndexThatDoesNotServeIsNamed(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		for _, c := range []struct{ index, want string }{
			{``, "no index on shop.sessions begins with last_seen"},
			{`create index i1 on sessions (last_seen) where note is null`, "no index on shop.sessions"},
			{`create index i2 on sessions using brin (last_seen)`, "no index on shop.sessions"},
			{`create index i3 on sessions (id, last_seen)`, "no index on shop.sessions"},
			{`create index i4 on sessions ((last_seen at time zone 'UTC'))`, "no index on shop.sessions"},
			{`create index i5 on sessions (last_seen desc, id)`, ""},
			{`create index i6 on sessions (last_seen)`, ""},
			{`create index i7 on sessions (last_seen, id)`, ""},
		} {
			if c.index != "" {
				w.do(c.index)
			}
			r, err := resolve.Resolve(t.Context(), w.admin, policyfile.Policy{Name: "p", Table: "shop.sessions", Expire: expiry.Entry{"column": "last_seen", "after": "1 day"}, Every: "1 hour", Terms: policyfile.Terms{Batch: 1}}, apply.Fit)
			must(t, err)
			if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got, c.want) || (c.want == "" && got != "") {
				t.Errorf("%s: got %q, want %q", c.index, got, c.want)
			}
		}
	})
}

// Spanner's short form takes parts from one another; PostgreSQL reads no sign that a space follows.
func TestPartsOfTheShortFormAreTakenFromOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, 14), sessions)
	for text, want := range map[string]string{
		"4 DAYS 2 MINUTES - 2 MINUTES": "4 days", "2 weeks - 1 day": "13 days", "1 year - 1 month": "11 mons", "7 years": "7 years", "0 days": "00:00:00", "1 month 3 days": "1 mon 3 days",
	} {
		file, err := policyfile.Parse("f", []byte("policies:\n  - {name: p, table: shop.sessions, expire: \"INTERVAL '"+text+"' ON last_seen\"}\n"))
		must(t, err)
		r, err := resolve.Resolve(t.Context(), w.admin, file.Policies[0], apply.Fit)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if age, is := r.Definition.Expire.(*expiry.Age); !is || age.After.String() != want {
			t.Errorf("%s: got %+v, want %s", text, r.Definition.Expire, want)
		}
	}
}
