package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// entries says how many entries there are of a policy, and which is the newest.
func (w *world) entries() (text string) {
	w.t.Helper()
	return valueOn[string](w.t, w.admin, `select concat(count(*), ' up to ', max(id)) from lapse.examined`)
}

// warm makes a batch of one row, so that what its checks found is kept, and another that finds it kept.
func (w *world) warm(b *batch) {
	w.t.Helper()
	b.Limit = 1
	for range 2 {
		_, err := w.call(b, nil)
		must(w.t, err)
	}
}

func TestTheChecksOfALeafAreMadeOnce(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (id int primary key, session bigint references sessions on delete cascade)`)
		w.fill("sessions", 10)
		p := w.armed(untilArmed)
		b := w.lease(p, w.open(&p))
		w.warm(b)
		before := w.entries()
		for _, of := range []string{"shop.sessions", "pg_class", "pg_trigger"} {
			must(t, runSQL(w.admin, `vacuum (analyze) `+of))
		}
		w.do(`insert into sessions select 100 + n, now() from generate_series(1, 1000) n`)
		w.do(`create table beside (id int primary key)`)
		_, err := w.call(b, nil)
		must(t, err)
		if after := w.entries(); before != after {
			t.Errorf("there were entries %s, and are %s", before, after)
		}
		w.do(`alter table clicks add column more int`)
		_, err = w.call(b, nil)
		must(t, err)
		if after := w.entries(); before == after {
			t.Errorf("a column more of what a cascade deletes was not noticed: entries %s", after)
		}
	})
}

const untilArmed = "policies:\n  - {name: p, table: shop.sessions, expire: {column: last_seen, after: 30 days}, state: armed}\n"

// Whatever the checks guard against is caught by the next batch after it was planted, though the one before has kept what it
// found.
func TestWhatIsPlantedAfterTheChecksWereKeptIsCaughtByTheNextBatch(t *testing.T) {
	t.Parallel()
	refused := map[string]bool{
		schemas.SQLStateTriggers: true, schemas.SQLStateUnseen: true, schemas.SQLStateColumns: true, schemas.SQLStateTarget: true,
	}
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		all := refusals()
		w := newWorld(t, db)
		must(t, runSQL(w.admin, `update lapse.installation set audit_required = true`))
		w.do(`create function mine(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
		file := "policies:\n"
		for i := range all {
			table := fmt.Sprintf("sessions_%02d", i)
			w.do(fmt.Sprintf(`create table %s (id bigint primary key, last_seen timestamptz not null)`, table))
			w.fill(table, 10)
			file += fmt.Sprintf("  - {name: p%02d, table: shop.%s, expire: {column: last_seen, after: 30 days}, state: armed}\n", i, table)
		}
		must(t, runSQL(w.admin, `update lapse.installation set audit_required = false`))
		_ = w.armed(file)
		tried := 0
		for i, p := range w.inForce() {
			if !refused[all[i].state] || all[i].before == nil {
				continue
			}
			tried++
			t.Run(all[i].name, func(t *testing.T) {
				w.t = t
				table := fmt.Sprintf("sessions_%02d", i)
				b := w.lease(p, w.open(&p))
				if all[i].state == schemas.SQLStateUnseen {
					audited(`create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate')`)(w, b, table)
				}
				w.warm(b)
				all[i].before(w, b, table)
				_, err := w.call(b, nil)
				wantState(t, err, all[i].state)
			})
		}
		if tried < 14 {
			t.Errorf("%d ways were tried", tried)
		}
	})
}

// laterPlant is what an owner may do to a table sessions with a child clicks that a cascade deletes, a child notes that is set null, and a
// partition above, and what of it is refused; "" where the batch goes on.
type laterPlant struct{ name, sql, state string }

func plantedLater() []laterPlant {
	const body = ` language plpgsql as 'begin return $1; end'`
	const fires = `create function fires() returns trigger language plpgsql as 'begin return old; end'; `
	return []laterPlant{
		{"a trigger on the leaf", fires + `create trigger x after delete on leaf for each row execute function fires()`, "LP006"},
		{"a trigger on the partitioned table", fires + `create trigger x after delete on sessions for each row execute function fires()`, "LP006"},
		{"a trigger on what a cascade deletes", fires + `create trigger x before delete on clicks for each row execute function fires()`, "LP006"},
		{"a trigger on what is set null", fires + `create trigger x before update on notes for each row execute function fires()`, "LP006"},
		{"a trigger two tables on", fires + `create trigger x before delete on marks for each row execute function fires()`, "LP006"},
		{"a trigger that is enabled again", `alter table clicks enable trigger off`, "LP006"},
		{"a rule on what a cascade deletes", `create rule x as on delete to clicks do also select 1`, "LP006"},
		{"a rule two tables on", `create rule x as on delete to marks do instead nothing`, "LP006"},
		{"statistics over a function", `create function f(bigint) returns bigint immutable` + body + `; create statistics x on (f(id)), id from leaf`, "LP006"},
		{"an index over a function on what a cascade deletes", `create function f(bigint) returns bigint immutable` + body + `; create index on clicks (f(id))`, "LP006"},
		{"an index over an operator", `create function f(bigint, bigint) returns boolean immutable language plpgsql as 'begin return true; end';
			create operator === (leftarg = bigint, rightarg = bigint, function = f); create index on leaf (id) where id === 1`, "LP006"},
		{"a check of what is set null", `create function f(bigint) returns bigint immutable` + body + `; alter table notes add check (f(id) = id)`, "LP006"},
		{"a check of a domain that a column has", `create function f(bigint) returns bigint immutable` + body + `; alter domain number add check (f(value) = value)`, "LP006"},
		{"a generated column of what is set null", `create function f(bigint) returns bigint immutable` + body + `; alter table notes add g bigint generated always as (f(id)) stored`, "LP006"},
		{"a cast of a column's type", `create function f(color) returns text immutable language plpgsql as 'begin return 1; end'; create cast (color as text) with function f(color) as implicit`, "LP006"},
		{"a superuser's function that is given away", `alter function known(bigint) owner to OWNER`, "LP006"},
		{"a superuser who is one no more", `alter role SUPER nosuperuser`, "LP006"},
		{"a table more that a cascade deletes", `create table more (id bigint references clicks on delete cascade)`, "LP012"},
		{"a partition of one that had none", `create table later_0 partition of later default`, "LP002"},
		{"what a cascade deletes of one that a cascade deletes later", `alter table later attach partition later_1 default`, "LP002"},
		{"a column that is renamed", `alter table sessions rename column last_seen to seen`, "LP011"},
		{"a leaf that is detached", `alter table sessions detach partition leaf`, "LP005"},
		{"a leaf that is renamed", `alter table leaf rename to sheet`, ""}, // found by its new name
		{"a root that is renamed", `alter table sessions rename to visits`, "LP005"},
		{"a schema that is renamed", `alter schema shop rename to market`, "LP005"},
		{"a child that is published no more", `alter publication lapse_deletes drop table shop.clicks`, "LP021"}, // enter says it first
		{"a child that is published with a filter", `alter publication lapse_deletes set table shop.sessions, shop.marks, shop.clicks where (id > 0)`, "LP021"},
		{"a publication without deletes", `alter publication lapse_deletes set (publish = 'insert')`, "LP021"},
		{"a publication of another name", `alter publication lapse_deletes rename to mine`, "LP021"},
		{"a child of another identity", `alter table clicks replica identity full`, "LP012"},
		{"a child without its identity", `alter table clicks drop constraint clicks_pkey cascade`, "LP012"},
	}
}

// Each is planted, refused and undone: one database serves them all.
func TestEveryLookUpOfTheChecksIsInTheSignature(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		super := db.NewRole(t, "super")
		must(t, w.script(`alter role `+super+` superuser; create function shop.known(bigint) returns bigint immutable language plpgsql as 'begin return $1; end';
			alter function shop.known(bigint) owner to `+super))
		for _, sql := range []string{
			`create domain number as bigint`, `create type color as enum ('red')`,
			`create table sessions (id bigint, last_seen timestamptz not null, n number, c color, primary key (id)) partition by range (id)`,
			`create table leaf partition of sessions for values from (0) to (1000)`,
			`create index on leaf (known(id))`,
			`create table clicks (id bigint primary key, session bigint references sessions on delete cascade)`,
			`create table marks (id bigint primary key references clicks on delete cascade)`,
			`create table notes (id bigint primary key, session bigint references sessions on delete set null)`,
			`create table later (id bigint primary key, session bigint references sessions on delete cascade) partition by list (id)`,
			`create table later_1 (id bigint primary key, session bigint)`,
			`create function off() returns trigger language plpgsql as 'begin return old; end'`,
			`create trigger off before delete on clicks for each row execute function off()`,
			`alter table clicks disable trigger off`,
			`insert into sessions select n, now() - interval '1 year' from generate_series(1, 100) n`,
		} {
			w.do(sql)
		}
		p := w.armed(untilArmed)
		b := w.lease(p, w.open(&p))
		audited(`create publication %[2]s for table shop.sessions, shop.clicks, shop.marks, shop.later with (publish = 'delete, truncate')`)(w, b, "")
		w.warm(b)
		for _, c := range plantedLater() {
			if db.Major < 15 && c.name == "a child that is published with a filter" {
				continue
			}
			before := w.entries()
			// In the batch's own transaction, so that all is undone with it.
			tx, err := w.admin.Begin(t.Context())
			must(t, err)
			role := w.app
			if slices.Contains([]string{"alter publication", "alter role", "alter function", "alter schema"}, strings.Join(strings.Fields(c.sql)[:2], " ")) {
				role = "postgres"
			}
			sql := strings.NewReplacer("OWNER", w.app, "SUPER", super).Replace(c.sql)
			must(t, script(t.Context(), tx, "set local role "+role+"; set local search_path = shop; "+sql+"; reset role"))
			if c.state == schemas.SQLStateTriggers { // a survey finds it too, though it asks of no leaf that is as it was
				must(t, script(t.Context(), tx, "savepoint surveyed"))
				_, err := tx.Exec(t.Context(), "select lapse.inspect($1, $2)", p.ID, p.Version)
				wantState(t, err, c.state)
				must(t, script(t.Context(), tx, "rollback to surveyed"))
			}
			must(t, script(t.Context(), tx, "set local session authorization "+testRoles.Executor))
			_, err = w.callIn(tx, b, nil)
			if got := schemas.StateOf(err); got != c.state {
				t.Errorf("%s: got %v (SQLSTATE %q), want %q", c.name, err, got, c.state)
			}
			must(t, tx.Rollback(t.Context()))
			if after := w.entries(); after != before {
				t.Errorf("%s: entries were %s and are %s", c.name, before, after)
			}
			if _, err := w.call(b, nil); err != nil {
				t.Errorf("without %s: %v", c.name, err)
			}
		}
	})
}

// An entry is a fact that the checks themselves found. The executor's login, or code that runs as a deleter inside a batch, can
// have them made, and nothing more.
func TestNobodyPlantsAnEntryOfTheChecks(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(untilArmed)
		leaf := w.oid("sessions")
		w.stolen()
		for _, conn := range []*pgx.Conn{w.exec, w.owner} {
			for _, sql := range []string{
				`insert into lapse.examined (policy_id, version, leaf, name, touched, signature, relations, parents, functions, operators, types) select 1, 1, 1, '', '{}', '', '{}', '{}', '{}', '{}', '{}'`,
				`update lapse.examined set relations = '{}'`, `delete from lapse.examined`,
				`select lapse.keep(1, 1, '{1}')`, `select lapse.familiar(1, 1, 1)`, `select lapse.examine(1, 1, '{1}')`,
			} {
				wantState(t, runSQL(conn, sql), "42501")
			}
		}
		wantState(t, runSQL(w.owner, `select lapse.acquaint(1, 1, '{1}', null)`), "42501")
		wantState(t, runSQL(w.exec, `select lapse.acquaint($1, $2, array[$3::oid], null)`, p.ID, p.Version, w.oid("shop.sessions_pkey")), schemas.SQLStateTarget)
		w.trigger("sessions", "after delete", "row")
		wantState(t, runSQL(w.exec, `select lapse.acquaint($1, $2, array[$3::oid], null)`, p.ID, p.Version, leaf), schemas.SQLStateTriggers)
		w.do(`alter table sessions disable trigger audit`)
		must(t, runSQL(w.exec, `select lapse.acquaint($1, $2, array[$3::oid], null)`, p.ID, p.Version, leaf))
		before := w.entries()
		must(t, runSQL(w.exec, `select lapse.acquaint($1, $2, array[$3::oid], null)`, p.ID, p.Version, leaf))
		if after := w.entries(); after != before || after == "0 up to " {
			t.Errorf("entries were %s and are %s", before, after)
		}
		w.do(`alter table sessions enable trigger audit`)
		b := w.lease(p, w.open(&p))
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateTriggers)
	})
}

// What a login has set before its checks are made is in no entry: under another spelling of its name no batch would find its leaf.
func TestAnEntryOfTheChecksIsSpelledAsBatchesSpellIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		must(t, runSQL(w.admin, `create schema "Shop" authorization `+w.app))
		w.do(`create table "Shop"."Visits" (id int, "At" timestamptz, primary key (id, "At")) partition by range ("At")`)
		w.do(`create table "Shop".visits_old partition of "Shop"."Visits" for values from (minvalue) to ('2020-01-01')`)
		w.do(`insert into "Shop"."Visits" select n, '2019-01-01' from generate_series(1, 10) n`)
		p := w.armed("policies:\n  - {name: p, table: '\"Shop\".\"Visits\"', expire: {column: At, after: 30 days}, state: armed}\n")
		leaf := valueOn[uint32](t, w.admin, `select '"Shop".visits_old'::regclass::oid`)
		w.stolen()
		must(t, runSQL(w.exec, `set quote_all_identifiers = on`))
		must(t, runSQL(w.exec, `select lapse.acquaint($1, $2, array[$3::oid], 'At')`, p.ID, p.Version, leaf))
		must(t, runSQL(w.exec, `reset all`))
		b := w.lease(p, w.open(&p))
		b.Limit = 5
		if got, err := w.call(b, nil); err != nil || got.Deleted != 5 {
			t.Errorf("a batch after it: %+v, %v", got, err)
		}
	})
}
