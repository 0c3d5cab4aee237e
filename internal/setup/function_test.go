package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
)

// A login that can become the catalog's owner could have a superuser's commands call what it likes.
func TestACatalogFunctionThatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		mallory, conn := p.login("mallory")
		db.Exec(t, `create schema evil; create domain evil.small as oid check (value > 0);
			create function evil.hit() returns int language sql immutable as 'select 1'; grant usage on schema evil to public`)
		rename := `alter function lapse.leaves(oid) rename to former`
		body := one[string](p, `select prosrc from pg_proc where oid = 'lapse.leaves(oid)'::regprocedure`)
		leaves := func(arguments string) string {
			return fmt.Sprintf(`create function lapse.leaves(%s) returns table (relation oid, kind "char", name text)
				language plpgsql stable as $lapse$%s$lapse$`, arguments, body)
		}
		for name, c := range map[string]struct{ sql, says string }{
			"another in its place":      {rename + `; create function lapse.leaves(root oid) returns int language sql as 'select 1'`, "function lapse.leaves has another text"},
			"renamed":                   {rename, "function lapse.leaves exists 0 times"},
			"dropped":                   {`drop function lapse.alarm(text)`, "function lapse.alarm exists 0 times"},
			"a second one":              {leaves("root oid, more int"), "function lapse.leaves exists 2 times"},
			"another text":              {`create or replace function lapse.release(shard bigint, term bigint, holder text) returns void language sql security definer set search_path = pg_catalog, pg_temp as 'select'`, "function lapse.release has another text"},
			"run as the caller":         {`alter function lapse.open_run security invoker`, "function lapse.open_run does not run with the rights"},
			"another search_path":       {`alter function lapse.measure set search_path = evil, pg_catalog`, "function lapse.measure has other settings"},
			"a setting more":            {`alter function lapse.beat set work_mem = '1GB'`, "function lapse.beat has other settings"},
			"stable":                    {`alter function lapse.beat stable`, "function lapse.beat has another language or other properties"},
			"a default that is run":     {`drop function lapse.leaves(oid); ` + leaves("root oid, more int default evil.hit()"), "function lapse.leaves has other arguments"},
			"an argument of a domain":   {`drop function lapse.leaves(oid); ` + leaves("root evil.small"), "function lapse.leaves has other arguments"},
			"one more":                  {`create function lapse.mine() returns int language sql as 'select 1'`, "function lapse.mine is none of Lapse's"},
			"an aggregate":              {`create aggregate lapse.mine(int) (sfunc = int4pl, stype = int)`, "function lapse.mine is none of Lapse's"},
			"a trigger of ours":         {`create trigger mine before insert on lapse.run for each row execute function lapse.refuse_change()`, "trigger mine on table lapse.run"},
			"a trigger of PostgreSQL's": {`create trigger mine before update on lapse.gate for each row execute function suppress_redundant_updates_trigger()`, "trigger mine on table lapse.gate"},
			"a condition on ours": {
				`drop trigger append_only on lapse.batch; create trigger append_only before update on lapse.batch
				   for each row when (evil.hit() > 0) execute function lapse.refuse_change()`, "trigger append_only on table lapse.batch",
			},
			"a cast": {`create type lapse.mine as enum ('a'); create function lapse.mine(lapse.mine) returns json language sql as $$select '1'::json$$;
				create cast (lapse.mine as json) with function lapse.mine(lapse.mine)`, "cast from lapse.mine to json"},
		} {
			// mallory is the catalog's owner in this session.
			if _, err := conn.PgConn().Exec(t.Context(), "begin; "+c.sql).ReadAll(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, err := site.CheckSchema(t.Context(), conn, p.roles)
			var function *site.FunctionError
			var schema *site.SchemaError
			if !errors.As(err, &function) && !errors.As(err, &schema) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want: %s", name, err, c.says)
			}
			if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
				t.Fatal(err)
			}
		}
		if there, err := site.CheckSchema(t.Context(), db.ConnectAs(t, mallory), p.roles); !there || err != nil {
			t.Errorf("afterwards: %v, %v", there, err)
		}
		_, err := conn.Exec(t.Context(), rename)
		p.must(err)
		var function *site.FunctionError
		if err := p.catalog(p.admin); !errors.As(err, &function) || !strings.Contains(err.Error(), "drop schema lapse") {
			t.Errorf("init: got %v, want a refusal that says what to do", err)
		}
	})
}
