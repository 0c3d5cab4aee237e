package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/hold"
	"lapse/schemas"
)

// matches compares a hold with its table as login.
func (w *world) matches(login string, request hold.Request) hold.Matches {
	w.t.Helper()
	var h *hold.Hold
	must(w.t, pgx.BeginFunc(w.t.Context(), w.admin, func(tx pgx.Tx) (err error) {
		var problem string
		if h, problem, err = hold.Resolve(w.t.Context(), tx, request); err == nil && problem != "" {
			err = fmt.Errorf("hold: %s", problem)
		}
		return err
	}))
	m, err := hold.Match(w.t.Context(), (&bare{w, login, nil}).draft(nil), h)
	must(w.t, err)
	return m
}

func TestWhoPlacesAHoldIsToldWhichKeysNoRowHas(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table t (id bigint, at timestamptz not null, who text, primary key (id, at)) partition by range (at)`,
			`create table t_1 partition of t for values from (minvalue) to ('2020-01-01 00:00+00')`, `create table t_2 partition of t default`,
			`insert into t select n, '2019-12-25 00:00+00'::timestamptz + n * interval '1 day', case when n <> 4 then chr(96 + n) end from generate_series(1, 20) n`,
			// What an application has: it does not run when rows are read.
			`create function noted() returns trigger language plpgsql as $$ begin return new; end $$`,
			`create trigger noted after insert on t for each row execute function noted()`)
		// The login that places holds may give functions to the deleter, and has no right on the table.
		w.armed(policyText("shop.t", "at", "30 days", "    state: armed", "    triggers: trusted"))
		deleter := valueOn[string](t, w.admin, `select role::text from lapse.deleter`)
		keeper, stranger, reader := db.NewRole(t, "keeper"), db.NewRole(t, "stranger"), db.NewRole(t, "reader")
		member := "grant " + deleter + " to " + keeper
		if db.Major >= 16 {
			member += " with inherit false, set true"
		}
		must(t, runSQL(w.admin, member))
		w.do("grant usage on schema shop to " + reader)
		w.do("grant select on t, t_2 to " + reader)
		for _, c := range []struct {
			request hold.Request
			given   int
			without []int
		}{
			{hold.Request{Table: "shop.t", Columns: []string{"id"}, Keys: [][]string{{"55"}, {"1", "007"}, {"55", "56"}}}, 5, []int{1, 4, 5}},
			{hold.Request{Table: "shop.t_2", Columns: []string{"id"}, Keys: [][]string{{"1", "20"}}}, 2, []int{1}},
			{hold.Request{Table: "shop.t", Keys: [][]string{{"1", "2019-12-26 UTC"}, {"1", "2019-12-27 UTC"}}}, 2, []int{2}},
			{hold.Request{Table: "shop.t", Columns: []string{"who"}, Keys: [][]string{{"d", "e", "e'; --"}}}, 3, []int{1, 3}},
			{hold.Request{Table: "shop.t", Where: "id > 20"}, 0, []int{0}},
			{hold.Request{Table: "shop.t", Where: "id > 19"}, 0, nil},
			{hold.Request{Table: "shop.t", Where: "who = 'none'"}, 0, nil}, // of one row it is unknown, and that one is held
		} {
			for _, login := range []string{keeper, reader, w.app, "postgres"} {
				if m := w.matches(login, c.request); m.Trouble != "" || m.Given != c.given || !slices.Equal(m.Without, c.without) {
					t.Errorf("%+v as %s: %+v, want %v of %d without a row", c.request, login, m, c.without, c.given)
				}
			}
		}
		secret := hold.Request{Table: "shop.t", Columns: []string{"who"}, Keys: [][]string{{"secret"}}}
		if m := w.matches(stranger, secret); !strings.HasSuffix(m.Trouble, fmt.Sprintf(": grant usage on schema shop to %[1]s; grant select on shop.t to %[1]s", schemas.Identifier(stranger))) || len(m.Without) > 0 {
			t.Errorf("as one who may not read: %+v", m)
		}
		// Somebody has the table locked: the hold does not wait for him.
		impatient := db.ConnectAs(t, w.app)
		must(t, runSQL(w.admin, `alter role `+reader+` set lock_timeout = '50ms'`))
		must(t, runSQL(impatient, `begin; lock table shop.t in access exclusive mode`))
		if m := w.matches(reader, secret); m.Trouble == "" {
			t.Errorf("behind a lock: %+v", m)
		}
		must(t, runSQL(impatient, `rollback`))
	})
}

// Code of the table's owner is looked for before anything is read, and does not run: the keys of a hold are there.
func TestNobodysCodeRunsWhenAHoldIsCompared(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint primary key, at timestamptz not null)`, `insert into t values (1, now())`,
			`create table ran (what text)`,
			`create function spy(at timestamptz) returns timestamptz language plpgsql immutable as $$ begin raise exception 'it ran'; end $$`)
		for what, plant := range map[string][2]string{
			"statistics": {`create statistics shop.s on (shop.spy('2020-01-01'::timestamptz)), id from shop.t`, `drop statistics shop.s`},
			"a check":    {`alter table t add constraint c check (shop.spy(at) is not null) not valid`, `alter table t drop constraint c`},
			"a view in its place": {
				`alter table t rename to real; create view t as select id, shop.spy(at) as at from real`,
				`drop view t; alter table real rename to t`,
			},
		} {
			must(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
				h, problem, err := hold.Resolve(t.Context(), tx, hold.Request{Table: "shop.t", Columns: []string{"id"}, Keys: [][]string{{"1"}}})
				must(t, err)
				if problem != "" {
					t.Fatal(problem)
				}
				_, err = w.owner.PgConn().Exec(t.Context(), plant[0]).ReadAll()
				must(t, err)
				m, err := hold.Match(t.Context(), (&bare{w, "postgres", nil}).draft(nil), h)
				must(t, err)
				if m.Trouble == "" || strings.Contains(m.Trouble, "it ran") {
					t.Errorf("%s: %+v", what, m)
				}
				_, err = w.owner.PgConn().Exec(t.Context(), plant[1]).ReadAll()
				return err
			}))
		}
	})
}
