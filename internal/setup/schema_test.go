package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

// trap is something that a role with CREATE in the database puts where init looks. hit counts how often it ran.
const trapSQL = `
	create schema evil; grant usage on schema evil to public;
	create sequence evil.hits; grant all on evil.hits to public;
	create function evil.hit() returns int language plpgsql immutable as $$ begin return nextval('evil.hits'); end $$;
	create function evil.on_change() returns trigger language plpgsql as $$ begin perform nextval('evil.hits'); return new; end $$;
	create schema lapse; grant all on schema lapse to public;
	create table lapse.%s (
	  only_row boolean primary key default true, schema_version int not null, slot name not null, slot_start pg_lsn,
	  audit_required boolean not null default true, keys jsonb not null default '{}', installed_at timestamptz default now()
	  %s);
	grant all on all tables in schema lapse to public;
	insert into lapse.%[1]s (schema_version, slot) values (%[3]d, 'x');
	%[4]s;
	alter sequence evil.hits restart`

func TestASchemaThatSomebodyElseMadeIsRefusedAndNothingInItRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 15, 18}, func(t *testing.T, db *pgtest.DB) {
		for name, trap := range map[string]struct{ table, column, more string }{
			"nothing but the table": {"installation", "", "select"},
			"a trigger": {"installation", "", `create trigger t before insert or update on lapse.installation
				for each row execute function evil.on_change()`},
			"a rule":               {"installation", "", `create rule r as on insert to lapse.installation do also select evil.hit()`},
			"a default":            {"installation", ", d int default evil.hit()", "select"},
			"a generated column":   {"installation", ", d int generated always as (evil.hit()) stored", "select"},
			"a check":              {"installation", ", check (evil.hit() > 0)", "select"},
			"an index":             {"installation", "", `create index on lapse.installation (evil.hit())`},
			"row security":         {"installation", "", `alter table lapse.installation enable row level security; create policy p on lapse.installation using (evil.hit() > 0)`},
			"a view":               {"other", "", `create view lapse.installation as select *, evil.hit() as h from lapse.other; grant all on lapse.installation to public`},
			"a table, empty still": {"installation", "", "delete from lapse.installation"},
		} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.New(t, db.Major)
				p := newPlace(t, db)
				mallory := db.NewRole(t, "mallory")
				db.Exec(t, fmt.Sprintf(`grant create on database %s to %s`, db.Name, mallory))
				_, err := db.ConnectAs(t, mallory).PgConn().Exec(t.Context(),
					fmt.Sprintf(trapSQL, trap.table, trap.column, schemas.Version, trap.more)).ReadAll()
				p.must(err)

				p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
				err = p.catalog(p.admin)
				var refused *site.SchemaError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), mallory) || !strings.Contains(err.Error(), "alter schema lapse rename") {
					t.Errorf("got %v, want a refusal that names %s and says what to do", err, mallory)
				}
				if one[bool](p, `select is_called from evil.hits`) {
					t.Error("what was planted ran")
				}
			})
		}
	})
}

func TestASchemaOfOursIsNoneOfSomebodyElse(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		check := func(want bool) {
			t.Helper()
			if there, err := site.CheckSchema(t.Context(), p.admin, p.roles); there != want || err != nil {
				t.Errorf("got %v, %v, want %v", there, err, want)
			}
		}
		check(false)
		p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
		p.must(p.catalog(p.admin))
		check(true)
		_, table := p.table("app")
		p.must(p.apply(p.admin, table))
		check(true)
		p.must(p.catalog(p.admin))
	})
}

// Each of these takes a right that was given away, or a superuser.
func TestWhatOthersPutIntoOurSchemaIsNamed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		mallory := db.NewRole(t, "mallory")
		db.Exec(t, `create schema evil; create function evil.hit() returns int language sql immutable as 'select 1';
			create function evil.on_change() returns trigger language plpgsql as 'begin return new; end';
			create domain evil.small as int check (evil.hit() > 0);
			create operator evil.=== (function = int4eq, leftarg = int, rightarg = int)`,
			fmt.Sprintf(`alter function evil.hit() owner to %[1]s; alter function evil.on_change() owner to %[1]s`, mallory))
		for _, c := range []struct{ plant, named, remove string }{
			{`create table lapse.mine ()`, "table lapse.mine belongs to postgres", `drop table lapse.mine`},
			{`create function lapse.mine() returns int language sql as 'select 1'`, "function lapse.mine() belongs to postgres", `drop function lapse.mine()`},
			{`create procedure lapse.mine() language sql as ''`, "function lapse.mine() belongs to postgres", `drop procedure lapse.mine()`},
			{`create type lapse.mine as enum ('a')`, "type lapse.mine belongs to postgres", `drop type lapse.mine`},
			{`create operator lapse.=== (function = int4eq, leftarg = int, rightarg = int)`, "operator lapse.===(integer,integer) belongs to postgres", `drop operator lapse.=== (int, int)`},
			{`create view lapse.mine as select 1 as one; alter view lapse.mine owner to ` + p.roles.Owner, "view lapse.mine is no plain table", `drop view lapse.mine`},
			{
				`create or replace view lapse.caller as select convert_to(evil.hit()::text, 'UTF8') as proof`,
				"rule _RETURN on view lapse.caller uses function evil.hit()", `create or replace view lapse.caller as select secret as proof from lapse.caller_secret`,
			},
			{`create trigger mine before insert on lapse.run for each row execute function evil.on_change()`, "trigger mine on table lapse.run calls evil.on_change() of " + mallory, `drop trigger mine on lapse.run`},
			{`create rule mine as on insert to lapse.run do also select 1`, "rule mine on table lapse.run", `drop rule mine on lapse.run`},
			{`create policy mine on lapse.run using (true)`, "policy mine on table lapse.run", `drop policy mine on lapse.run`},
			{`create table evil.child () inherits (lapse.run)`, "evil.child inherits from lapse.run", `drop table evil.child`},
			{
				`alter table lapse.run alter column number drop identity; alter table lapse.run alter column number set default evil.hit()`,
				"default value for column number of table lapse.run uses function evil.hit()", `alter table lapse.run alter column number drop default`,
			},
			{`create index mine on lapse.run ((policy_id + evil.hit()))`, "index lapse.mine uses function evil.hit()", `drop index lapse.mine`},
			{`alter table lapse.run add constraint mine check (evil.hit() > 0)`, "constraint mine on table lapse.run uses function evil.hit()", `alter table lapse.run drop constraint mine`},
			{`alter table lapse.run add constraint mine check (policy_id operator(evil.===) policy_id)`, "constraint mine on table lapse.run uses operator evil.===(integer,integer)", `alter table lapse.run drop constraint mine`},
			{`alter table lapse.run add column mine evil.small`, "table lapse.run uses type evil.small", `alter table lapse.run drop column mine`},
			{`alter schema lapse owner to ` + mallory, "belongs to \"" + mallory + "\"", `alter schema lapse owner to ` + p.roles.Owner},
		} {
			db.Exec(t, c.plant)
			_, err := site.CheckSchema(t.Context(), p.admin, p.roles)
			var refused *site.SchemaError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.named) {
				t.Errorf("after %s: got %v, want it to name: %s", c.plant, err, c.named)
			}
			if err := p.catalog(p.admin); !errors.As(err, &refused) {
				t.Errorf("after %s: init got %v, want a refusal", c.plant, err)
			}
			db.Exec(t, c.remove)
			if _, err := site.CheckSchema(t.Context(), p.admin, p.roles); err != nil {
				t.Fatalf("after %s: %v", c.remove, err)
			}
		}
	})
}
