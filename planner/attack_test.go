package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// An attack is a way in which a table's owner gets code to run inside a batch. t is the policy's table; f and the operator
// ### say who runs them.
type attack struct {
	name  string
	table string // made before the policy; "" is plainTable
	key   string // the key's values in the table's one due row; "" is 1
	reads bool   // its text is read where the row is stepped over, and in no other batch
	plant string // made afterwards
	// runs says as whom the code runs when nobody asks for intruders: the deleter, or the owner of the table that a
	// foreign key reaches; "" where our settings keep it from running.
	runs    string
	where   string // the table that apply names; "" is t
	intrude string // the kind and name that apply says; "" is the function
	as      string // who plants: the table's owner, or asOther
	beside  bool   // the batch's leaf has nothing to do with it: only a survey would run it
	says    string // what apply says instead; "" is that it would run inside the deletion
}

const (
	plainTable = `create table t (id bigint primary key, last_seen timestamptz not null, note text)`
	asDeleter  = "deleter"
	asOwner    = "owner"
	asBoth     = "both"  // and the deleter, when a survey counts what a cascade deletes
	asOther    = "other" // somebody else, who may refer to the table
)

const planted = `
	create function f(v bigint) returns bigint language plpgsql immutable as
	  'begin raise warning ''planted code ran as %'', current_user; return v; end';
	create function f_or(v bigint, w bigint) returns boolean language plpgsql immutable as
	  'begin raise warning ''planted code ran as %'', current_user; return true; end';
	create operator ### (leftarg = bigint, rightarg = bigint, function = f_or)`

const (
	rooted = `create table t (id bigint primary key, last_seen timestamptz not null) partition by range (id);
		create table t_all partition of t for values from (0) to (100)`
	enumKeyed = `create type mood as enum ('sad', 'ok'); create table t (id mood primary key, last_seen timestamptz not null)`
	moodCast  = `create function f_text(v mood) returns text language plpgsql immutable as
		'begin raise warning ''planted code ran as %'', current_user; return ''x''; end'; create cast (mood as text) with function f_text(mood)`
)

func child(onDelete, more string) string {
	return `create table child (id int primary key, parent bigint references t on delete ` + onDelete + more + `); insert into child values (1, 1)`
}

var attacks = []attack{
	{name: "an index expression", plant: `create index on t ((f(1) + id))`, runs: asDeleter},
	{name: "an index expression with an operator", plant: `create index on t ((1::bigint ### 2::bigint), id)`, runs: asDeleter, intrude: "function f_or"},
	{name: "an index predicate", plant: `create index on t (id) where f(1) = 1`, runs: asDeleter},
	{name: "an operator in an index predicate", plant: `create index on t (id) where 1::bigint ### 1::bigint`, runs: asDeleter, intrude: "function f_or"},
	{name: "extended statistics", plant: `create statistics stats on (f(1) + id), last_seen from t`, runs: asDeleter},
	{name: "an operator in extended statistics", plant: `create statistics stats on ((1::bigint ### 2::bigint) = (id > 0)), last_seen from t`, runs: asDeleter, intrude: "function f_or"},
	{name: "a check", plant: `alter table t add check (f(id) is not null)`},
	{name: "an operator in a check", plant: `alter table t add check (id ### id)`, intrude: "function f_or"},
	{name: "a domain's check", plant: `create domain positive as bigint check (f(value) is not null); alter table t alter id type positive`},
	{name: "a domain's domain's check", plant: `create domain positive as bigint check (f(value) is distinct from 0); create domain narrow as positive; alter table t add other narrow`},
	{name: "a generated column", plant: `alter table t add g bigint generated always as (f(id)) stored`},
	{
		name: "a partition key above", table: `create table t (id bigint, last_seen timestamptz not null, primary key (id))`,
		plant: `create table above (like t) partition by list ((f(1) + id)); alter table above attach partition t for values in (2)`,
		says:  "is a partition: name its root",
	},
	{name: "a cast of the key's type", table: enumKeyed, key: `'ok'`, reads: true, plant: moodCast, runs: asDeleter, intrude: "function f_text"},
	{
		name: "a cast of what the key's domain is over", table: strings.Replace(enumKeyed, "create table t (id mood", "create domain positive as mood; create table t (id positive", 1),
		key: `'ok'`, reads: true, plant: moodCast, runs: asDeleter, intrude: "function f_text",
	},
	{
		name: "a cast of the key's array", table: strings.Replace(enumKeyed, "(id mood", "(id mood[]", 1), key: `'{ok}'`, reads: true,
		plant: strings.ReplaceAll(moodCast, "mood", "mood[]"), runs: asDeleter, intrude: "function f_text",
	},
	{
		name: "a cast of the key's composite", table: `create type mood as (a int, b int); create table t (id mood primary key, last_seen timestamptz not null)`, key: `'(1,2)'`, reads: true,
		plant: moodCast, runs: asDeleter, intrude: "function f_text",
	},
	{
		name: "a cast that nobody asks for", table: enumKeyed, key: `'ok'`,
		plant: `create function f_int(v mood) returns int language sql immutable as 'select 1'; create cast (mood as int) with function f_int(mood) as implicit`, intrude: "function f_int",
	},
	{name: "a trigger", plant: triggered("after delete on t for each row"), runs: asDeleter, intrude: "trigger planted"},
	{name: "a trigger on statements", plant: triggered("before delete on t for each statement"), runs: asDeleter, intrude: "trigger planted"},
	{name: "a rule", plant: `create rule planted as on delete to t do also select f(1)`, runs: asDeleter, intrude: "rule planted"},

	{name: "a check of a child", plant: child("set null", `, check (f(parent) is distinct from 0)`), runs: asOwner, where: "child"},
	{name: "a domain's check in a child", plant: `create domain positive as bigint check (f(value) is distinct from 0);` +
		strings.Replace(child("set null", ""), "parent bigint", "parent positive", 1), runs: asOwner, where: "child"},
	{name: "a generated column of a child", plant: child("set null", `, g bigint generated always as (f(parent)) stored`), runs: asOwner, where: "child"},
	{name: "a default of a child", plant: strings.Replace(child("set default", ""), "parent bigint", "parent bigint default f(null)", 1), runs: asOwner, where: "child"},
	{name: "a default of a partitioned child", plant: `create table child (id int, parent bigint default f(null) references t on delete set default) partition by range (id);
		create table part partition of child (parent default null) default; insert into child values (1, 1)`, runs: asOwner, where: "child"},
	{name: "an index expression of a child", plant: child("cascade", "") + `; create index on child ((f(1) + id))`, runs: asOwner, where: "child"},
	{name: "an index expression of a child that is updated", plant: child("set null", "") + `; create index on child (f(parent))`, runs: asOwner, where: "child"},
	{name: "an index predicate of a child", plant: child("cascade", "") + `; create index on child (id) where 1::bigint ### 2::bigint`, runs: asBoth, where: "child", intrude: "function f_or"},
	{name: "extended statistics of a child", plant: child("cascade", "") + `; create statistics stats on (f(1) + id), parent from child`, runs: asBoth, where: "child"},
	{name: "a partition key of a child", plant: `create table child (id int, parent bigint references t on delete set null) partition by range ((f(id)));
		create table part partition of child for values from (minvalue) to (maxvalue); insert into child values (1, 1)`, runs: asOwner, where: "child"},
	{name: "a trigger of a child", plant: child("cascade", "") + `; ` + triggered("after delete on child for each row"), runs: asDeleter, where: "child", intrude: "trigger planted"},
	{name: "a check of what follows a child's update", plant: `create table child (id int primary key, parent bigint unique references t on delete set null);
		create table grand (up bigint references child (parent) on update cascade, check (f(up) is distinct from 0));
		insert into child values (1, 1); insert into grand values (1)`, runs: asOwner, where: "grand"},
	{
		name: "an index expression of somebody else's child whose rows stay", as: asOther, plant: `create table child (id int primary key, parent bigint references t); create index on child ((f(1) + id))`,
		runs: asOther, where: "child",
	},
	{
		name: "a partition's index expression of somebody else's child whose rows stay", as: asOther, runs: asOther, where: "part",
		plant: `create table child (id int primary key, parent bigint references t) partition by range (id); create table part partition of child default; create index on part ((f(1) + id))`,
	},
	{name: "extended statistics of the root", table: rooted, plant: `create statistics stats on (f(1) + id), last_seen from t`, runs: asDeleter, where: "t"},
	{
		name: "extended statistics of a partition without partitions", table: rooted, runs: asDeleter, where: "u", beside: true,
		plant: `create table u partition of t for values from (100) to (200) partition by range (id); create statistics stats on (f(1) + id), last_seen from u`,
	},
	{
		name: "a trigger that moves rows", runs: asOwner, where: "child", intrude: "foreign key child_parent_fkey", says: "would move rows",
		plant: `create table child (id int, parent bigint references t on delete set null) partition by list (parent);
			create table child_null partition of child for values in (null); create table child_some partition of child default;
			insert into child values (1, 1); ` + triggered("before insert on child_null for each row"),
	},
	{
		name: "an index expression of a grandchild", plant: child("cascade", "") + `; create table grand (up int references child on delete cascade); create index on grand ((f(1) + up))`,
		runs: asOwner, where: "grand",
	},
}

func triggered(when string) string {
	return `create function f_trigger() returns trigger language plpgsql as 'begin raise warning ''planted code ran as %'', current_user; return coalesce(old, new); end';
		create trigger planted ` + when + ` execute function f_trigger()`
}

// listener hears what planted code says in a session of the executor's.
type listener struct {
	mu    sync.Mutex
	heard []string
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := l.heard
	l.heard = nil
	return heard
}

func (w *world) listen(role string) (*pgx.Conn, *listener) {
	w.t.Helper()
	config, err := pgx.ParseConfig(w.db.As(role))
	must(w.t, err)
	l := &listener{}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if who, found := strings.CutPrefix(n.Message, "planted code ran as "); found {
			l.heard = append(l.heard, who)
		}
	}
	conn, err := pgx.ConnectConfig(w.t.Context(), config)
	must(w.t, err)
	w.t.(*testing.T).Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn, l
}

// siege is a database in which every attack has a schema of its own, and an armed policy with one due row.
type siege struct {
	*world
	other               *pgx.Conn // somebody who owns neither the table nor the policy
	executor, superuser *listener
	asked               string // the text of lapse.intruders
}

func besiege(t *testing.T, db *pgtest.DB) *siege {
	t.Helper()
	s := &siege{world: newWorld(t, db), other: db.ConnectAs(t, db.NewRole(t, "other"))}
	s.exec, s.executor = s.listen(testRoles.Executor)
	s.admin, s.superuser = s.listen("postgres")
	s.asked = valueOn[string](t, s.admin, `select pg_get_functiondef('lapse.intruders(oid[], boolean)'::regprocedure)`)
	file := "policies:\n"
	for i := range attacks {
		a := &attacks[i]
		must(t, s.script(fmt.Sprintf(`create schema a%02[1]d authorization %[2]s; grant usage, create on schema a%02[1]d to %[3]s_other`, i, s.app, db.Name)))
		s.plant(s.owner, fmt.Sprintf("a%02d", i), cmp.Or(a.table, plainTable), `insert into t (id, last_seen) values (`+cmp.Or(a.key, "1")+`, now() - interval '1 year')`)
		file += fmt.Sprintf("  - {name: a%02[1]d, table: a%02[1]d.t, expire: {column: last_seen, after: 30 days}, state: armed}\n", i)
	}
	_ = s.armed(file)
	return s
}

// unasked makes a batch, which is rolled back, and a survey, with nobody asking for intruders, and returns as whom planted
// code ran.
func (s *siege) unasked(a *attack, p *record.InForce, b *batch) []string {
	t := s.t
	t.Helper()
	must(t, s.script(`create or replace function lapse.intruders(targets oid[], updates boolean) returns table (relation oid, name name, class oid, object oid) language sql as 'select 1::oid, null::name, 1::oid, 1::oid where false'`))
	defer func() { must(t, s.script(s.asked)) }()
	tx, err := s.exec.Begin(t.Context())
	must(t, err)
	b.Claim.Cascades, err = database.Cascades(t.Context(), tx, p.TableOID)
	must(t, err)
	if a.reads {
		b.Limit, b.StepOver = 1, true
	}
	_, err = s.callIn(tx, b, nil)
	must(t, err)
	must(t, tx.Rollback(t.Context()))
	survey, err := surveyInForce(t.Context(), s.exec, p, time.Time{})
	must(t, err)
	if survey.Trouble != "" {
		t.Errorf("without the question the survey says %s", survey.Trouble)
	}
	return slices.Compact(slices.Sorted(slices.Values(s.executor.take())))
}

// who is the role that a planted function of the attack runs as, nil for nobody.
func (s *siege) who(a *attack) []string {
	switch {
	case a.runs == asOwner, a.name == "a trigger of a child" && s.db.Major >= 18: // it runs as the role that queued it
		return []string{s.app}
	case a.runs == asDeleter:
		return []string{s.deleter()}
	case a.runs == asBoth:
		return []string{s.deleter(), s.app}
	case a.runs == asOther:
		return []string{s.db.Name + "_other"}
	}
	return nil
}

func (s *siege) wantRefusals(a *attack, schema string, p *record.InForce, b *batch) {
	t := s.t
	t.Helper()
	if !a.beside {
		_, err := s.call(b, nil)
		wantState(t, err, schemas.SQLStateTriggers)
	}
	survey, err := surveyInForce(t.Context(), s.exec, p, time.Time{})
	must(t, err)
	if !strings.Contains(survey.Trouble, "would run") || survey.Due != 0 {
		t.Errorf("the survey says %+v", survey)
	}
	file, err := policyfile.Parse("policies.yaml", []byte(strings.Replace(policyText(schema+".t", "last_seen", "30 days"), "name: p", "name: "+schema, 1)))
	must(t, err)
	_, err = resolve.Resolve(t.Context(), s.admin, file.Policies[0], apply.Fit)
	var all policyfile.Problems
	said := []string{cmp.Or(a.says, "would run inside the deletion")}
	if a.says == "" || a.intrude != "" {
		said = append(said, cmp.Or(a.intrude, "function f"), schema+"."+cmp.Or(a.where, "t"))
	}
	for _, want := range said {
		if !errors.As(err, &all) || !strings.Contains(err.Error(), want) {
			t.Errorf("apply says %v, want %q", err, want)
		}
	}
	if heard := append(s.executor.take(), s.superuser.take()...); len(heard) > 0 {
		t.Errorf("planted code ran as %v", heard)
	}
	if n := valueOn[int](t, s.owner, `select count(*) from `+schema+`.t`); n != 1 {
		t.Errorf("%d rows are left, want the one", n)
	}
}

func TestNoCodeOfATablesOwnerRunsInsideABatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 16, 18), func(t *testing.T, db *pgtest.DB) {
		s := besiege(t, db)
		for i := range attacks {
			a := &attacks[i]
			t.Run(a.name, func(t *testing.T) {
				s.t = t
				schema := fmt.Sprintf("a%02d", i)
				p := s.named(schemas.PolicyName(schema))
				b := s.lease(p, s.open(&p))
				if a.as == asOther {
					s.plant(s.owner, schema, `grant references on t to `+db.Name+`_other`)
					s.plant(s.other, schema, planted, a.plant)
				} else {
					s.plant(s.owner, schema, planted, a.plant)
				}
				_ = s.executor.take()
				s.wantRefusals(a, schema, &p, b)
				// The attack is one: without the question it runs.
				if got, want := s.unasked(a, &p, b), s.who(a); !slices.Equal(got, want) {
					t.Errorf("without the question planted code ran as %v, want %v", got, want)
				}
			})
		}
	})
}

// plant runs statements in a schema.
func (w *world) plant(conn *pgx.Conn, schema string, sql ...string) {
	w.t.Helper()
	script := "set search_path = " + schema + ";\n" + strings.Join(sql, ";\n")
	if _, err := conn.PgConn().Exec(w.t.Context(), script).ReadAll(); err != nil {
		w.t.Fatalf("%v\nin: %s", err, script)
	}
}

// A table of somebody else's that refers to the policy's can run PostgreSQL's own functions inside a batch, with the rights
// of its owner, and with them change what names mean in the session. What follows in the deletion function runs as the
// deleter of the policy's table, and must mean what it says.
func TestWhatAChildsOwnerMakesOfTheSessionDoesNotReachTheDeleter(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		stranger := db.NewRole(t, "stranger")
		must(t, w.script(`create schema evil authorization `+stranger+`; grant usage on schema evil to public; grant usage on schema shop to `+stranger+`; grant references on shop.sessions to `+stranger))
		_, err := db.ConnectAs(t, stranger).PgConn().Exec(t.Context(), `
			create function evil.less(a int, b int) returns boolean language plpgsql as
			  'begin raise warning ''planted code ran as %'', current_user; return true; end';
			create operator evil.< (leftarg = int, rightarg = int, function = evil.less);
			create function evil.cardinality(a anyarray) returns int language plpgsql as
			  'begin raise warning ''planted code ran as %'', current_user; return 1; end';
			create table evil.child (session bigint references shop.sessions on delete set null,
			  check (set_config('search_path', 'evil, pg_catalog', false) is not null));
			insert into evil.child values (3)`).ReadAll()
		must(t, err)
		exec, listener := w.listen(testRoles.Executor)
		w.exec = exec
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		got, err := w.call(w.lease(p, w.open(&p)), nil)
		must(t, err)
		if got.Deleted != 10 || valueOn[int](t, w.admin, `select count(*) from evil.child where session is null`) != 1 {
			t.Errorf("got %+v, and the child's row is not set null", got)
		}
		if path := valueOn[string](t, w.exec, `select pg_catalog.current_setting('search_path')`); path != "evil, pg_catalog" {
			t.Errorf("the session's search_path is %s: the attack is none", path)
		}
		if heard := listener.take(); len(heard) > 0 {
			t.Errorf("planted code ran as %v", heard)
		}
	})
}
