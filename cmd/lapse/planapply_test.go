package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// drawnWorlds is how many worlds are drawn for a server, unless -rapid.checks says it.
const drawnWorlds = 25

// In drawn schemas, under drawn rights: whatever apply refuses of a file, plan -f has said, in the same words at the same place; what plan -f
// lets pass, apply brings into force; and the first run then stops for nothing that plan -f has not said.
//
//lapse:long
func TestPlanSaysWhatApplyRefuses(t *testing.T) {
	t.Parallel()
	worlds := drawnWorlds
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() != checks.DefValue {
		worlds, _ = strconv.Atoi(checks.Value.String())
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sites := map[bool]*drawnSite{true: newDrawnSite(t, db, true), false: newDrawnSite(t, pgtest.New(t, db.Major), false)}
		drawn, failed := 0, false
		tally := map[string]int{}
		rapid.Check(t, func(rt *rapid.T) {
			if drawn++; drawn > worlds && !failed { // once one has failed, it is shrunk
				return
			}
			defer func() { failed = failed || rt.Failed() }()
			e := sites[rapid.Bool().Draw(rt, "audit")]
			w := e.draw(rt)
			e.clear(rt)
			e.build(rt, w)
			e.compare(rt, w, tally)
		})
		t.Logf("%v", tally)
		if tally["applied"] == 0 || tally["refused"] == 0 {
			t.Errorf("of %d worlds %d were applied and %d refused: draw others", worlds, tally["applied"], tally["refused"])
		}
	})
}

// drawnSite is an installation in whose database drawn schemas follow one another.
type drawnSite struct {
	*machine
	db                 *pgtest.DB
	admin              *pgx.Conn
	audit              bool
	app, other, keeper string // roles that own tables; keeper owns the database
	teller             string // applies, and is no superuser
	stranger           string
	worlds             int
}

func newDrawnSite(t *testing.T, db *pgtest.DB, audited bool) *drawnSite {
	t.Helper()
	e := &drawnSite{
		db: db, audit: audited, admin: db.Connect(t), app: db.NewRole(t, "app"), other: db.NewRole(t, "other"), keeper: db.NewRole(t, "keeper"),
		teller: db.NewRole(t, "teller"), stranger: db.NewRole(t, "stranger"),
	}
	audit := "audit: off"
	if audited {
		audit = fmt.Sprintf("kafka: { brokers: %q }\ntopics: { system: %[2]s.system, user: %[2]s.user, log: %[2]s.log }", kafkatest.Broker(t).Addr(), kafkatest.Name())
	}
	e.machine = newMachine(t, fmt.Sprintf(`
database: %q
roles: { prefix: %s_ }
keys: keys
floors: [{ table: "*.audit", least: 90 days, reason: "the law" }]
%s
`, db.URL, db.Name, audit))
	e.lapse("init", "--keys", "keys")
	e.write("none.yaml", "policies: []\n")
	db.Exec(t, "alter database "+db.Name+" owner to "+e.keeper)
	return e
}

// clear takes away what the world before left.
func (e *drawnSite) clear(rt *rapid.T) {
	e.must(rt, 0, "", "apply", "--prune", "--yes", "-f", "none.yaml")
	_, err := e.admin.Exec(context.Background(), fmt.Sprintf(`
		do $$ declare r record; begin
		  for r in select format('drop publication %%I', pubname) as sql from pg_publication where pubname not like 'lapse%%' loop execute r.sql; end loop;
		  for r in select format('drop schema if exists %%I cascade', nspname) as sql from pg_namespace where nspname in ('shop', 'Odd Shop', 'public') loop execute r.sql; end loop;
		  for r in select format('drop owned by %%I; drop role %%1$I', rolname) as sql from pg_roles where rolname like current_database() || '\_deleter\_%%' loop execute r.sql; end loop;
		  for r in select format('revoke %%I from %%I cascade', g.rolname, u.rolname) as sql
		             from pg_auth_members m join pg_roles g on g.oid = m.roleid join pg_roles u on u.oid = m.member
		            where u.rolname in ('%[1]s', '%[2]s', '%[3]s', '%[4]s', '%[5]s') loop execute r.sql; end loop;
		end $$;
		alter role %[1]s nocreaterole inherit;
		create schema public; grant all on schema public to public; create schema shop; grant all on schema shop to public; create schema "Odd Shop" authorization %[2]s`,
		e.teller, e.app, e.other, e.keeper, e.stranger), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		rt.Fatalf("clear: %v", err)
	}
}

// spoken is what a command said, in JSON.
type spoken struct {
	Exit     int
	Errors   []mistake
	Warnings []string
	Result   json.RawMessage
	text     string
}

// must runs a command that must end with this code.
func (e *drawnSite) must(rt *rapid.T, code int, login string, args ...string) string {
	s := e.says(rt, login, args...)
	if s.Exit != code {
		rt.Fatalf("lapse %s: exit code %d, want %d\n%s", strings.Join(args, " "), s.Exit, code, s.text)
	}
	return s.text
}

// says runs a command, with a login other than the superuser's if one is named.
func (e *drawnSite) says(rt *rapid.T, login string, args ...string) *spoken {
	cmd := exec.Command(e.bin, args...)
	cmd.Dir, cmd.Env = e.dir, e.env
	if login != "" {
		cmd.Env = append(slices.Clone(e.env), "LAPSE_DATABASE_URL_OWNER="+e.db.As(login))
	}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		rt.Fatal(err)
	}
	s := &spoken{text: out.String() + log.String()}
	if slices.Contains(args, "--json") {
		if err := json.Unmarshal(out.Bytes(), s); err != nil {
			rt.Fatalf("lapse %s: %v\n%s", strings.Join(args, " "), err, s.text)
		}
	}
	s.Exit = cmd.ProcessState.ExitCode()
	return s
}

// drawnWorld is a database of an application, and a policy file.
type drawnWorld struct {
	login    string   // that applies, "" for the superuser
	sql      []string // makes the tables
	before   bool     // the policies are in force before later is done
	later    []string
	prepared bool   // a superuser has run what --grants prints
	meddle   string // with the deleters
	file     string
}

func (w *drawnWorld) String() string {
	return fmt.Sprintf("login: %q, grants: %v, meddle: %q, in force before: %v\n%s\n-- later\n%s\n%s", w.login, w.prepared, w.meddle, w.before,
		strings.Join(w.sql, ";\n"), strings.Join(w.later, ";\n"), w.file)
}

func pick[T any](rt *rapid.T, what string, from ...T) T {
	return rapid.SampledFrom(from).Draw(rt, what)
}

// oneIn is true in one of n draws, or less; shrinking makes it false. rapid favours the first and the last of what it draws from.
func oneIn(rt *rapid.T, n int, what string) bool {
	some := make([]bool, n+1)
	some[n/2] = true
	return rapid.SampledFrom(some).Draw(rt, what)
}

func (e *drawnSite) draw(rt *rapid.T) *drawnWorld {
	w := &drawnWorld{}
	if oneIn(rt, 2, "no superuser") {
		w.login = e.teller
		w.prepared = !oneIn(rt, 3, "no grants")
		if !oneIn(rt, 20, "no member") {
			w.sql = append(w.sql, fmt.Sprintf("grant %s_owner to %s", e.db.Name, e.teller))
		}
		for _, owner := range []string{e.app, e.other, e.keeper} {
			if oneIn(rt, 2, "member of owner") {
				w.sql = append(w.sql, fmt.Sprintf("grant %s to %s%s", owner, e.teller, pick(rt, "option", "", " with admin option")))
			}
		}
		w.sql = append(w.sql, "alter role "+e.teller+" "+pick(rt, "attribute", "nocreaterole", "createrole", "noinherit"))
	}
	w.meddle = pick(rt, "meddle", "", "", "", "", "grant "+e.other+" to %s", "alter role %s createdb", "grant %s to "+e.stranger, "alter role %s noinherit", "alter role %s bypassrls", "revoke %s from "+e.teller)
	w.sql = append(w.sql,
		"create type shop.kind as enum ('open', 'closed'); create domain shop.moment as timestamptz",
		fmt.Sprintf(`create function public.own(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'; alter function public.own owner to %[1]s;
			create function public.fires() returns trigger language plpgsql as 'begin return old; end'; alter function public.fires owner to %[1]s`, e.app))
	w.before = oneIn(rt, 4, "before")
	w.file = "policies:\n"
	for i := 0; i == 0 || i < 3 && oneIn(rt, 3, "another table"); i++ {
		w.file += drawPolicy(rt, i, e.drawTable(rt, w), "state: armed")
	}
	if oneIn(rt, 12, "one more policy") {
		w.file += drawPolicy(rt, 3, pick(rt, "on", "public.visits", "shop.t", "shop.shop_t_old", "shop.shop_t_v", "shop.shop_t_c", "shop.shop_t_m", "public.nowhere", "visits", "pg_catalog.pg_class"))
	}
	return w
}

// drawTable draws a table and what hangs on it. Not every statement must be possible.
func (e *drawnSite) drawTable(rt *rapid.T, w *drawnWorld) string {
	table := pick(rt, "schema", "public", "shop", `"Odd Shop"`) + "." + pick(rt, "name", "t", "visits", `"Order"`, "accounts")
	if oneIn(rt, 15, "below a floor") {
		table = "shop.audit"
	}
	bare := regexp.MustCompile(`[^a-z]+`).ReplaceAllString(strings.ToLower(strings.Trim(table, `"`)), "_")
	owner := pick(rt, "owner", e.app, e.app, e.other, e.keeper, "postgres", "pg_database_owner")
	by := pick(rt, "partitioned", "", "", "", " partition by range (at)", " partition by hash (id)")
	key, unlogged := "primary key", ""
	if oneIn(rt, 10, "odd table") {
		key, unlogged = pick(rt, "key", "primary key", "", "deferrable", "unique"), pick(rt, "persistence", "", "unlogged ")
	}
	columns := map[bool]string{false: "(id)", true: "(id, at)"}[strings.Contains(by, "range")]
	constraint := map[string]string{"primary key": ", primary key " + columns, "": "", "deferrable": ", primary key " + columns + " deferrable", "unique": ", unique " + columns}[key]
	generated := ", made timestamp generated always as (local + interval '1 day') stored"
	if by != "" {
		generated = ""
	}
	w.sql = append(w.sql, fmt.Sprintf(`create %stable %s (id bigint not null, at timestamptz not null, local timestamp, day date, epoch bigint, doc jsonb, txt text,
		kind shop.kind default 'open', dom shop.moment, gone timestamptz, ttl interval, keep int not null default 1%s%s)%s`, unlogged, table, generated, constraint, by))
	switch {
	case strings.Contains(by, "range"):
		w.sql = append(w.sql, fmt.Sprintf(`create table shop.%[1]s_old partition of %[2]s for values from (minvalue) to ('2024-01-01'); create table shop.%[1]s_new partition of %[2]s default`, bare, table))
	case by != "":
		w.sql = append(w.sql, fmt.Sprintf(`create table shop.%[1]s_old partition of %[2]s for values with (modulus 2, remainder 0); create table shop.%[1]s_new partition of %[2]s for values with (modulus 2, remainder 1)`, bare, table))
	}
	w.sql = append(w.sql,
		fmt.Sprintf(`insert into %s select n, now() - n * interval '10 days', now() - n * interval '1 day', now(), extract(epoch from now()) - n * 86400, '{"at": "2020-01-01", "dates": "2020-01-01"}', '2020-01-01'
			from generate_series(1, 6) n`, table),
		fmt.Sprintf(`create table %s_expiry (id bigint primary key, expires_at timestamptz)`, table))
	for _, t := range []string{table, "shop." + bare + "_old", "shop." + bare + "_new", table + "_expiry"} {
		w.sql = append(w.sql, fmt.Sprintf("alter table %s owner to %s", t, owner))
	}
	extras := []string{
		"create index on %[1]s (at, id)", "alter table %[1]s enable row level security", "alter table %[1]s force row level security, enable row level security",
		"alter table %[1]s replica identity full", "alter table %[1]s replica identity nothing",
		"create table shop.%[2]s_c (id bigint primary key, t bigint references %[1]s on delete cascade)",
		"create table shop.%[2]s_c (t bigint references %[1]s on delete cascade); alter table shop.%[2]s_c owner to %[3]s",
		"create table shop.%[2]s_c (id bigint primary key, t bigint references %[1]s on delete cascade); alter table shop.%[2]s_c owner to %[4]s",
		"create table shop.%[2]s_s (id bigint primary key, t bigint references %[1]s on delete set null)",
		"create table shop.%[2]s_n (id bigint primary key, t bigint references %[1]s)",
		"create table shop.%[2]s_d (id bigint primary key, t bigint default 1 references %[1]s on delete set default) ",
		"alter table %[1]s add parent bigint references %[1]s on delete cascade",
		"create trigger fires before delete on %[1]s for each row execute function public.fires()",
		"create trigger fires after update on %[1]s for each row execute function public.fires()",
		"create trigger fires before delete on %[1]s for each row execute function public.fires(); alter table %[1]s disable trigger fires",
		"create rule r as on delete to %[1]s do also select 1", "create index on %[1]s (public.own(id))",
		"alter table %[1]s add check (public.own(id) > 0)",
		"create publication theirs for all tables", "create publication theirs for table %[1]s", "create publication theirs for table %[1]s where (keep > 0)", "create publication theirs for table %[1]s (keep)",
		"create publication theirs for tables in schema shop, public",
		"revoke delete on %[1]s from %[3]s", "revoke select on %[1]s from %[3]s", "revoke all on schema shop from public", "revoke all on schema public from public",
		"alter table shop.%[2]s_old owner to %[4]s", "alter table shop.%[2]s_old set unlogged", "create view shop.%[2]s_view as select * from shop.%[2]s_old",
		"create view shop.%[2]s_v as select * from %[1]s", "create table shop.%[2]s_i () inherits (%[1]s)",
		"alter table %[1]s_expiry owner to %[4]s", "alter table %[1]s_expiry drop constraint %[2]s_pkey", `update %[1]s set doc = '{"dates": ["2020-01-01"]}'`,
		"alter table %[1]s drop column keep", "alter table %[1]s rename to other", "drop table %[1]s cascade", "grant %[5]s_owner to %[3]s",
		"create materialized view shop.%[2]s_m as select 1 as id, now() as at", "alter table %[1]s alter at drop not null",
		"insert into %[1]s (id, at, local) select n, now(), now() at time zone 'America/Los_Angeles' from generate_series(100, 110) n; create index on %[1]s (local)",
		"alter table shop.%[2]s_new alter constraint x", "drop index shop.%[2]s_old_pkey", "alter table %[1]s set (autovacuum_enabled = off)",
		"alter table shop.%[2]s_old replica identity nothing", "create trigger fires before delete on shop.%[2]s_old for each row execute function public.fires()",
	}
	for i := 0; i < 3 && oneIn(rt, 3-i, "one more"); i++ {
		sql := fmt.Sprintf(pick(rt, "extra", extras...)+"-- %[1]s %[2]s %[3]s %[4]s %[5]s", table, bare, owner, pick(rt, "other", e.other, e.app, "postgres"), e.db.Name)
		sql = sql[:strings.LastIndex(sql, "-- ")]
		if oneIn(rt, 2, "later") {
			w.later = append(w.later, sql)
		} else {
			w.sql = append(w.sql, sql)
		}
	}
	return table
}

func drawPolicy(rt *rapid.T, n int, table string, keys ...string) string {
	expires := []string{
		"column: at, after: 30 days", "column: local, after: 30 days", "column: local, after: 30 days, zone: Europe/Berlin", "column: day, after: 1 mon",
		"column: at", "column: epoch, epoch: s, after: 3 days", "column: txt, iso8601: true, after: 3 days", "column: doc, path: dates, iso8601: true", "column: doc, path: at, instant: true",
		"column: at, ttl_column: ttl", "bucket: { column: at, span: 1 hour }, after: 1 day", `expression: "at + ttl"`, "sidecar: SIDECAR, column: expires_at",
	}
	more := []string{
		`where: "keep > 0"`, `where: "kind = 'closed'"`, `where: "doc ? 'a'"`, "action: drop_partition", "action: { soft: { column: gone } }", "triggers: trusted",
		"moves: detect", "index: create", "shards: { by: [id], count: 4 }", `daily: "03:00"`, "every: 5 minutes", "max_fraction: 0.5", "state: armed", "state: paused",
	}
	if oneIn(rt, 8, "odd policy") {
		expires = append([]string{
			`expression: "at + nothing"`, `expression: "at + public.own(id) * ttl"`, "column: att, after: 30 days", "column: id, after: 3 days", "column: made, after: 3 days",
			"column: dom, after: 3 days", "column: at, after: a while", "column: gone, after: 30 days", "column: txt, after: 1 day",
		}, expires...)
		more = append([]string{
			`where: "nope > 1"`, `where: "public.own(id) > 1"`, `where: "dom > '2020-01-01'"`, "action: { soft: { column: id } }", "action: { soft: { column: att } }",
			"evidence: due", "events: { columns: [txt] }", "events: { columns: [at] }", "batch: 0",
		}, more...)
	}
	expire := strings.ReplaceAll(pick(rt, "expire", expires...), "SIDECAR", schemas.Literal(table+"_expiry"))
	text := fmt.Sprintf("  - name: p%d\n    table: %s\n    expire: { %s }\n", n, schemas.Literal(table), expire)
	for i := 0; i < 2 && oneIn(rt, 2, "one more key"); i++ {
		keys = append([]string{pick(rt, "more", more...)}, keys...)
	}
	for _, more := range keys {
		if key, _, _ := strings.Cut(more, ":"); !strings.Contains(text, "    "+key+":") {
			text += "    " + more + "\n"
		}
	}
	return text
}

// build makes a world.
func (e *drawnSite) build(rt *rapid.T, w *drawnWorld) {
	e.worlds++
	w.file = strings.ReplaceAll(w.file, "name: p", fmt.Sprintf("name: w%d-", e.worlds)) // nobody accepted anything under this name
	e.write("drawn.yaml", w.file)
	do := func(all []string) {
		for _, sql := range all {
			if _, err := e.admin.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				_, _ = e.admin.Exec(context.Background(), "rollback", pgx.QueryExecModeSimpleProtocol)
			}
		}
	}
	do(w.sql)
	if w.before {
		e.says(rt, "", "apply", "--yes", "-f", "drawn.yaml")
	}
	do(w.later)
	if w.prepared {
		do([]string{strings.TrimPrefix(e.says(rt, w.login, "apply", "-f", "drawn.yaml", "--grants").text, stopOnError)})
	}
	if w.meddle != "" {
		rows, err := e.admin.Query(context.Background(), `select quote_ident(rolname) from pg_roles where rolname like current_database() || '\_deleter\_%'`)
		if err != nil {
			rt.Fatal(err)
		}
		deleters, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			rt.Fatal(err)
		}
		for _, deleter := range deleters {
			do([]string{fmt.Sprintf(w.meddle, deleter)})
		}
	}
}
