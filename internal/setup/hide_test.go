package setup_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/internal/setup/tables"
	"lapse/planner"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// hidden is a database with policies of several kinds, whose tables have rows that are due, will be within a day, and never.
type hidden struct {
	*place
	owner, reader string
	login         *pgx.Conn
}

const hiddenPolicies = `
policies:
  - { name: days, table: app.days, expire: { column: at, after: 1 day } }
  - { name: months, table: app.months, expire: { column: at, after: 1 mon 3 days } }
  - { name: zoned, table: 'app."Zo""ned"', expire: { column: "a t", after: 2 days, zone: America/New_York } }
  - { name: alone, table: app.alone, expire: { column: at, after: 0 days } }
  - { name: ttl, table: app.ttl, expire: { column: at, ttl_column: ttl, ttl_default: 1 mon } }
  - { name: some, table: app.some, expire: { column: at, after: 1 day }, where: "note = 'x'" }
  - { name: parts, table: app.parts, expire: { column: at, after: 1 day } }
  - { name: beside, table: app.beside, expire: { sidecar: app.beside_ttl, column: at, after: 0 days } }
`

func newHidden(t *testing.T, db *pgtest.DB) *hidden {
	t.Helper()
	h := &hidden{place: installed(t, db), owner: db.NewRole(t, "apper"), reader: db.NewRole(t, "reader")}
	login := db.NewRole(t, "login")
	statements := []string{
		"create table app.%s (id int primary key, at timestamptz, note text)",
		"insert into app.%s select n, case when n % 50 > 0 then now() - n * interval '1 hour' end, case when n % 3 > 0 then 'x' end from generate_series(1, 1500) n",
	}
	script := fmt.Sprintf("grant %[1]s to %[2]s; create schema app authorization %[1]s; set role %[1]s; grant usage on schema app to %[3]s;", h.owner, login, h.reader)
	for _, table := range []string{"days", "months", "alone", "ttl", "some", "beside"} {
		for _, s := range statements {
			script += strings.Replace(s, "%s", table, 1) + ";"
		}
	}
	script += `create table app."Zo""ned" (id int primary key, "a t" timestamp); insert into app."Zo""ned" select n, (now() at time zone 'UTC') - n * interval '1 hour' from generate_series(1, 100) n;
		create table app.parts (id int primary key, at timestamptz) partition by hash (id); create table app.p1 partition of app.parts for values with (modulus 1, remainder 0);
		insert into app.parts select id, at from app.days;
		alter table app.ttl add ttl interval; update app.ttl set ttl = case id % 4 when 0 then '1 mon'::interval when 1 then '5 days' when 2 then '-1 day' end;
		create table app.beside_ttl (id int primary key references app.beside on delete cascade, at timestamptz); insert into app.beside_ttl select id, at from app.beside where id % 7 > 0;
		grant select, insert, update, delete on app.days, app.months, app.alone, app.ttl, app.some, app.parts, app.beside, app."Zo""ned" to ` + h.reader
	db.Exec(t, script)
	h.must(catalog.Apply(t.Context(), h.admin, h.roles, hiddenPolicies))
	h.login = db.ConnectAs(t, login)
	return h
}

// do hides what is due under a policy, or shows it again.
func (h *hidden) do(name string, as planner.HideAs, drop bool) *tables.Hiding {
	h.t.Helper()
	w, does := h.look(name, as, drop)
	h.must(does.Execute(h.t.Context(), w))
	return w
}

func (h *hidden) look(name string, as planner.HideAs, drop bool) (*tables.Hiding, *tables.Hider) {
	h.t.Helper()
	all, err := record.LoadInForce(h.t.Context(), h.admin)
	h.must(err)
	for i := range all {
		if all[i].Name == schemas.PolicyName(name) {
			does := &tables.Hider{Session: site.Session{Conn: h.login, Roles: h.roles, Log: slog.New(slog.DiscardHandler)}, TableOID: all[i].TableOID, As: as, Drop: drop}
			w, err := does.Preview(h.t.Context(), planner.HideUnder(&all[i].Definition))
			h.must(err)
			return w, does
		}
	}
	h.t.Fatalf("there is no policy %s", name)
	return nil, nil
}

// The policy's own functions, which count in UTC, are the measure of what a session in another zone sees.
func TestDueRowsVanishAtOnceForTheApplicationAndForNobodyElse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		reader := db.ConnectAs(t, h.reader)
		h.must(exec(t.Context(), reader, "set timezone = 'America/New_York'; set search_path = app"))
		shape := func() string {
			return one[string](h.place, shapeOf, "app") + one[string](h.place, `select string_agg(relname || relrowsecurity, ' ' order by relname) from pg_class where relnamespace = 'app'::regnamespace`)
		}
		before := shape()
		all, err := record.LoadInForce(t.Context(), h.admin)
		h.must(err)
		count := func(conn *pgx.Conn, of string) (n int64) {
			t.Helper()
			h.must(conn.QueryRow(t.Context(), `select count(*) from `+of).Scan(&n))
			return n
		}
		for i := range all {
			p := &all[i]
			var due int64
			counting := db.ConnectAs(t, h.roles.Executor)
			h.must(counting.QueryRow(t.Context(), `select due from `+functions.SurveyFunction(p.ID, p.Version)+`(clock_timestamp(), null, 0)`).Scan(&due))
			rows := count(h.admin, p.TableName)
			if due == 0 || due == rows {
				t.Fatalf("%s: %d of %d rows are due, which shows nothing", p.Name, due, rows)
			}
			w := h.do(string(p.Name), planner.HideView, false)
			h.do(string(p.Name), planner.HideView, false)
			if n := count(reader, schemas.Identifier(w.Schema, w.ViewName())); n != rows-due {
				t.Errorf("%s: the view has %d rows, want %d of %d", p.Name, n, rows-due, rows)
			}
			h.do(string(p.Name), planner.HideView, true)
			h.do(string(p.Name), planner.HidePolicy, false)
			h.do(string(p.Name), planner.HidePolicy, false)
			for who, want := range map[*pgx.Conn]int64{reader: rows - due, h.login: rows} {
				if n := count(who, p.TableName); n != want {
					t.Errorf("%s: %s sees %d rows, want %d of %d", p.Name, who.Config().User, n, want, rows)
				}
			}
			if tag, err := reader.Exec(t.Context(), `delete from `+p.TableName+` where false`); err != nil {
				t.Errorf("%s: %v, %v", p.Name, tag, err)
			}
			h.do(string(p.Name), planner.HidePolicy, true)
			h.do(string(p.Name), planner.HidePolicy, true)
			if n := count(reader, p.TableName); n != rows {
				t.Errorf("%s: after the drop there are %d rows of %d", p.Name, n, rows)
			}
		}
		if after := shape(); after != before {
			t.Errorf("after the drops there is\n%s\nof\n%s", after, before)
		}
	})
}

// A view for the owner's login and row security for everybody else are both sensible on one table, and ask the same function.
func TestViewAndRowSecurityOfOneTableAreEachTakenBackAlone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		reader := db.ConnectAs(t, h.reader)
		seen := func(of string) (n int64) {
			h.must(reader.QueryRow(t.Context(), `select count(*) from `+of).Scan(&n))
			return n
		}
		before, rows := one[string](h.place, shapeOf, "app"), seen("app.days")
		for _, first := range []planner.HideAs{planner.HideView, planner.HidePolicy} {
			h.do("days", planner.HideView, false)
			h.do("days", planner.HidePolicy, false)
			hidden := rows - seen("app.days_live")
			h.do("days", first, true)
			switch first {
			case planner.HideView:
				if n := seen("app.days"); n != rows-hidden {
					t.Errorf("without the view row security shows %d rows of %d", n, rows-hidden)
				}
				h.do("days", planner.HidePolicy, true)
			case planner.HidePolicy:
				if n := seen("app.days_live"); n != rows-hidden {
					t.Errorf("without row security the view has %d rows of %d", n, rows-hidden)
				}
				h.do("days", planner.HideView, true)
			}
			if after := one[string](h.place, shapeOf, "app"); after != before {
				t.Errorf("after %s was taken back first there is\n%s\nof\n%s", first, after, before)
			}
		}
	})
}

func TestHidingLeavesTheApplicationsOwnRowSecurityAndViewsAlone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		reader := db.ConnectAs(t, h.reader)
		db.Exec(t, "set role "+h.owner+`; alter table app.days enable row level security; create policy mine on app.days using (id < 30); create view app.some_live as select 1`)
		seen := func() (n int) {
			t.Helper()
			h.must(reader.QueryRow(t.Context(), `select count(*) from app.days`).Scan(&n))
			return n
		}
		h.do("days", planner.HidePolicy, false)
		if n := seen(); n != 23 {
			t.Errorf("%d rows are seen, want the 23 that are younger than a day and below 30", n)
		}
		h.do("days", planner.HidePolicy, true)
		if n := seen(); n != 29 {
			t.Errorf("after the drop %d rows are seen, want the policy's own 29", n)
		}
		if _, err := reader.Exec(t.Context(), `update app.days set at = now() - interval '3 days' where id = 1`); err != nil {
			t.Error(err)
		}
		does := &tables.Hider{Session: site.Session{Conn: h.login}, As: planner.HideView}
		h.must(h.admin.QueryRow(t.Context(), `select 'app.some'::regclass::oid`).Scan(&does.TableOID))
		all, err := record.LoadInForce(t.Context(), h.admin)
		h.must(err)
		_, err = does.Preview(t.Context(), planner.HideUnder(&all[0].Definition))
		var refused *tables.ScaffoldError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "is there already") {
			t.Errorf("over a view of the application's: %v", err)
		}
		db.Exec(t, "set role "+h.owner+`; alter table app.months force row level security`)
		if w, _ := h.look("months", planner.HidePolicy, false); len(w.Warnings) != 1 || !strings.Contains(w.Warnings[0], "no force row level security") {
			t.Errorf("under FORCE: %q", w.Warnings)
		}
	})
}

// Under a soft policy rows that are set are hidden too, set by anybody, and what is due at once. The application goes on with
// the table itself.
func TestWhatASoftPolicyHasSetIsHiddenToo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		reader := db.ConnectAs(t, h.reader)
		db.Exec(t, "set role "+h.owner+`; alter table app.days add gone timestamptz; alter table app.some add gone boolean not null default false;
			update app.days set gone = now() where id in (1, 2, 100); update app.some set gone = true where id in (1, 2, 3, 100)`)
		h.must(catalog.Apply(t.Context(), h.admin, h.roles, `
policies:
  - { name: days, table: app.days, expire: { column: at, after: 1 day }, action: { soft: { column: gone } } }
  - { name: purge, table: app.days, expire: { column: gone, after: 1 day } }
  - { name: some, table: app.some, expire: { column: at, after: 1 day }, where: "note = 'x'", action: { soft: { column: gone } } }
`))
		// Of the 23 rows that are younger than a day two are set, and one that is due; those without a time stay.
		for name, live := range map[string]string{
			"days": "id not in (1, 2) and (id < 24 or id % 50 = 0) and id <> 100",
			"some": "id not in (1, 2, 3, 100) and (id < 24 or id % 50 = 0 or id % 3 = 0)",
		} {
			var want, got int
			h.must(h.admin.QueryRow(t.Context(), `select count(*) from app.`+name+` where `+live).Scan(&want))
			for _, as := range []planner.HideAs{planner.HideView, planner.HidePolicy} {
				w := h.do(name, as, false)
				of := map[planner.HideAs]string{planner.HideView: "app." + name + "_live", planner.HidePolicy: "app." + name}[as]
				h.must(reader.QueryRow(t.Context(), `select count(*) from `+of+` where `+live).Scan(&got))
				var all int
				h.must(reader.QueryRow(t.Context(), `select count(*) from `+of).Scan(&all))
				if got != want || all != want {
					t.Errorf("%s, %s: %d rows are seen, %d of them live, want %d", name, as, all, got, want)
				}
				if warned := len(w.Warnings) == 1 && strings.Contains(w.Warnings[0], "needs --as view"); warned != (as == planner.HidePolicy) {
					t.Errorf("%s, %s: %q", name, as, w.Warnings)
				}
				_, err := reader.Exec(t.Context(), `update app.`+name+` set gone = `+map[string]string{"days": "now()", "some": "true"}[name]+` where id = 5`)
				if (err == nil) != (as == planner.HideView) {
					t.Errorf("%s, %s: the application sets the column itself: %v", name, as, err)
				}
				db.Exec(t, `update app.`+name+` set gone = `+map[string]string{"days": "null", "some": "false"}[name]+` where id = 5`)
				h.do(name, as, true)
			}
		}
	})
}

// What somebody plants in a schema of the search path is not what decides which rows are hidden.
func TestAPlantedOperatorDoesNotDecideWhatIsHidden(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		db.Exec(t, `create schema evil; grant usage on schema evil to public;
			create function evil.no(timestamptz, timestamptz) returns boolean language sql as 'select false';
			create operator evil.<= (leftarg = timestamptz, rightarg = timestamptz, function = evil.no)`)
		reader := db.ConnectAs(t, h.reader)
		h.must(exec(t.Context(), reader, "set search_path = evil, pg_catalog"))
		for _, name := range []string{"days", "months"} {
			w := h.do(name, planner.HideView, false)
			var seen, rows int
			h.must(reader.QueryRow(t.Context(), `select count(*) from `+schemas.Identifier(w.Schema, w.ViewName())).Scan(&seen))
			h.must(reader.QueryRow(t.Context(), `select count(*) from app.`+name).Scan(&rows))
			if seen == rows {
				t.Errorf("%s: the view hides nothing", name)
			}
		}
	})
}

// A superuser's table is deleted from without its owner's rights: row security would hide due rows from the deleter too.
func TestRowSecurityThatWouldStopThePolicyIsNotMade(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		h := newHidden(t, db)
		db.Exec(t, `create table app.root (id int primary key, at timestamptz); insert into app.root select n, now() - interval '2 days' from generate_series(1, 9) n`)
		h.must(catalog.Apply(t.Context(), h.admin, h.roles, hiddenPolicies+"  - { name: root, table: app.root, expire: { column: at, after: 1 day } }\n"))
		all, err := record.LoadInForce(t.Context(), h.admin)
		h.must(err)
		var root *record.InForce
		for i := range all {
			if all[i].Name == "root" {
				root = &all[i]
			}
		}
		look := func(as planner.HideAs, drop bool) (*tables.Hiding, error) {
			does := &tables.Hider{Session: site.Session{Conn: h.admin, Roles: h.roles, Log: slog.New(slog.DiscardHandler)}, TableOID: root.TableOID, As: as, Drop: drop}
			return does.Preview(t.Context(), planner.HideUnder(&root.Definition))
		}
		deleter := one[string](h.place, `select pg_get_userbyid(proowner)::text from pg_proc where proname = $1`, fmt.Sprintf("delete_%d_%d", root.ID, root.Version))
		fix := "alter role " + schemas.Identifier(deleter) + " bypassrls"
		if _, err := look(planner.HidePolicy, false); err == nil || !strings.Contains(err.Error(), "use --as view") || !strings.Contains(err.Error(), fix) {
			t.Fatalf("got %v", err)
		}
		if _, err := look(planner.HideView, false); err != nil {
			t.Error(err)
		}
		if _, err := look(planner.HidePolicy, true); err != nil {
			t.Error(err)
		}
		// What the refusal says is enough: the deleter sees every row then.
		db.Exec(t, fix)
		w, err := look(planner.HidePolicy, false)
		h.must(err)
		db.Exec(t, w.SQL)
		counting := db.ConnectAs(t, h.roles.Executor)
		var due int
		h.must(counting.QueryRow(t.Context(), `select due from `+functions.SurveyFunction(root.ID, root.Version)+`(clock_timestamp(), null, 0)`).Scan(&due))
		if due != 9 {
			t.Errorf("%d rows are due, want 9", due)
		}
	})
}
