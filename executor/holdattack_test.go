package executor

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/planner/hold"
	"lapse/schemas"
)

// onHold makes a table of ten due rows, n, with a child m whose row 3 is held, and a policy.
func onHold(t *testing.T, db *pgtest.DB, n string) string {
	t.Helper()
	owned(t, db, strings.ReplaceAll(`create table {} (id bigint primary key, at timestamptz, c text, d int);
		create table {}_c (id bigint primary key, up bigint references {} on delete cascade, c text); create index on {}_c (up);
		insert into {} select n, now() - interval '1 year', n::text, n from generate_series(1, 10) n; create index on {} (at, id);
		insert into {}_c select n, n, n::text from generate_series(1, 10) n`, "{}", n))
	return policy(n, "public."+n)
}

// What a hold is on may change under it. It never comes to match nothing: the policy stops and says which hold to place again.
func TestAHoldOfWhichTheTableChangedStopsThePolicy(t *testing.T) {
	t.Parallel()
	changes := map[string]struct {
		hold   hold.Request
		change string // {} is the table; run as its owner
		says   string
	}{
		"renamed":  {byWhere("public.{}", "c = '3'"), "alter table {} rename column c to e", "columns of public.{} are not those"},
		"swapped":  {byWhere("public.{}", "c = '3'"), "alter table {} rename column c to e; alter table {} rename column d to c", "columns of public.{} are not those"},
		"remade":   {byWhere("public.{}", "c = '3'"), "alter table {} drop column c; alter table {} add column c text", "columns of public.{} are not those"},
		"retyped":  {hold.Request{Table: "public.{}", Columns: []string{"d"}, Keys: [][]string{{"3"}}}, "alter table {} alter column d type bigint", "columns of public.{} are not those"},
		"enum":     {byWhere("public.{}", "c = 'x'"), "alter type enum_t rename value 'x' to 'z'", "columns of public.{} are not those"},
		"enums":    {byWhere("public.{}", "c = '{x}'"), "alter type enums_t add value 'z'", "columns of public.{} are not those"},
		"enumdom":  {byWhere("public.{}", "c::text = 'x'"), "alter type enumdom_t rename value 'x' to 'z'", "columns of public.{} are not those"},
		"collated": {hold.Request{Table: "public.{}", Columns: []string{"c"}, Keys: [][]string{{"3"}}}, "alter table {} alter column c type text collate \"C\"", "columns of public.{} are not those"},
		"child":    {byKeys("public.{}_c", "3"), "alter table {}_c rename column id to other", "columns of public.{}_c are not those"},
		"newchild": {byKeys("public.{}_c", "3"), "drop table {}_c; create table {}_c (id bigint primary key, up bigint references {} on delete cascade, c text)", "public.{}_c is not the table that hold"},
		"stand_in": {byKeys("public.{}_c", "3"), "alter table {}_c rename to {}_old; create table {}_c (id bigint primary key, up bigint references {} on delete cascade)", "public.{}_c is not the table that hold"},
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := holdSession(t, db)
		var entries []string
		for n := range changes {
			entries = append(entries, onHold(t, db, n))
		}
		owned(t, db, "create type enum_t as enum ('w', 'x'); alter table enum alter column c type enum_t using 'x'",
			"create type enums_t as enum ('w', 'x'); alter table enums alter column c type enums_t[] using '{x}'",
			"create type enumdom_t as enum ('w', 'x'); create domain enumdom_d as enumdom_t; alter table enumdom alter column c type enumdom_d using 'x'")
		arm(t, db, policies(entries...))
		for n, c := range changes {
			c.hold.Table = strings.ReplaceAll(c.hold.Table, "{}", n)
			placeHold(t, s, c.hold)
		}
		for n, c := range changes {
			w := open(t, db, schemas.PolicyName(n))
			owned(t, db, strings.ReplaceAll(c.change, "{}", n))
			_, err := w.batch(t, 10)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != schemas.SQLStateHold || !strings.Contains(refused.Message, strings.ReplaceAll(c.says, "{}", n)) {
				t.Errorf("%s: got %v, want: %s", n, err, c.says)
			}
			if grade(err, circumstances{limit: 10, own: true}) != StopPolicy {
				t.Errorf("%s: the policy is not stopped", n)
			}
		}
		// Released, it blocks nobody.
		inForce, err := holds.Read(t.Context(), s.Conn, false)
		if err != nil || len(inForce) != len(changes) {
			t.Fatal(inForce, err)
		}
		for _, h := range inForce {
			if err := holds.Release(t.Context(), s, h.ID, 0, "placed again"); err != nil {
				t.Error(err)
			}
		}
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "newchild")
		if got := ids(t, db, "newchild"); got != "-" {
			t.Errorf("rows %s stay after the release", got)
		}
	})
}

// What an owner of tables, the catalog's owner or time does to a hold, and what a policy does that is made after it.
func TestAHoldOutlivesWhatHappensAroundIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := holdSession(t, db)
		// A hold on a table without a policy; a partition that is detached; a policy that is made afterwards.
		owned(t, db, `create table p (id bigint, at timestamptz, primary key (id, at)) partition by range (at);
			create table p_old partition of p for values from (minvalue) to (now() - interval '100 days');
			create table p_new partition of p for values from (now() - interval '100 days') to (maxvalue);
			insert into p select n, now() - interval '1 year' from generate_series(1, 9) n; create index on p (at, id)`)
		placeHold(t, s, byWhere("public.p", "id = 4"))
		owned(t, db, "alter table p detach partition p_old", "drop table p")
		arm(t, db, policies(policy("p", "public.p_old"), onHold(t, db, "content"), onHold(t, db, "foreign_child")))
		if versions := one[bool](t, db, "select bool_and(hold_version = 1) from lapse.gate"); !versions {
			t.Error("a policy that is made after a hold does not claim it")
		}
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"}); err == nil || !strings.Contains(err.Error(), "hold 1 is on public.p, which is gone") {
			t.Errorf("the held table is dropped: %v", err)
		}
		if err := holds.Move(t.Context(), s, 1, "public.p_old", "what is left of it"); err != nil {
			t.Fatal(err)
		}
		once(t, newExecutor(t, db), "p")
		if got := ids(t, db, "p_old"); got != "4" {
			t.Errorf("of a partition that was detached rows %s stay, want 4", got)
		}
		// What the hold is on is taken away by the catalog's owner.
		placeHold(t, s, byKeys("public.content", "5"))
		db.Exec(t, "delete from lapse.hold_key")
		w := open(t, db, "content")
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateHold {
			t.Errorf("without its keys: %v", err)
		}
		db.Exec(t, "delete from lapse.hold_content where hold = 2")
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateHold {
			t.Errorf("without its content: %v", err)
		}
		// A child of another owner's is held all the same: the policy stops until it may read the child.
		owner := db.NewRole(t, "other")
		db.Exec(t, "alter table foreign_child_c owner to "+owner)
		placed, err := holds.Place(t.Context(), s, holds.Order{Request: byKeys("public.foreign_child_c", "7"), Matter: "M", Reason: "a test"})
		if err != nil || len(placed.Warnings) == 0 {
			t.Fatalf("a hold on another owner's child: %v, warnings %q", err, placed.Warnings)
		}
		var grant string
		for _, warning := range placed.Warnings {
			if _, sql, found := strings.Cut(warning, "may not read and lock them: "); found {
				grant = sql
			}
		}
		w = open(t, db, "foreign_child")
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateHold {
			t.Errorf("before the grant: %v", err)
		}
		db.Exec(t, grant)
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "foreign_child")
		if got := ids(t, db, "foreign_child"); got != "7" {
			t.Errorf("after %q rows %s stay, want 7", grant, got)
		}
	})
}
