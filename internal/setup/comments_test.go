package setup_test

import (
	"testing"

	"lapse/internal/pgtest"
)

// uncommented are the relations, columns, types and functions of schema lapse without a comment, but for the functions of
// policies.
const uncommented = `
	select coalesce(array_agg(what order by what), '{}') from (
	  select 'schema lapse' as what from pg_namespace n where n.nspname = 'lapse' and obj_description(n.oid, 'pg_namespace') is null
	  union all
	  select 'table ' || c.relname from pg_class c
	   where c.relnamespace = 'lapse'::regnamespace and c.relkind in ('r', 'v', 'm', 'f', 'p') and obj_description(c.oid, 'pg_class') is null
	  union all
	  select 'type ' || t.typname from pg_type t
	   where t.typnamespace = 'lapse'::regnamespace and obj_description(t.oid, 'pg_type') is null
	     and (t.typtype <> 'c' or exists (select from pg_class c where c.oid = t.typrelid and c.relkind = 'c')) -- a table has one too
	     and t.typelem = 0
	  union all
	  select 'column ' || c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
	   where c.relnamespace = 'lapse'::regnamespace and c.relkind in ('r', 'v', 'm', 'f', 'p', 'c') and a.attnum > 0 and not a.attisdropped
	     and col_description(c.oid, a.attnum) is null
	  union all
	  select 'function ' || p.proname from pg_proc p
	   where p.pronamespace = 'lapse'::regnamespace and p.proname !~ '^(delete|find|survey|due)_[0-9]+_[0-9]+$' and obj_description(p.oid, 'pg_proc') is null
	) missing`

func TestEverythingInTheSchemaHasAComment(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		if missing := one[[]string](p, uncommented); len(missing) > 0 {
			t.Errorf("without a comment are: %q: write them in a script of the catalog's newest version", missing)
		}
		// The question finds each kind of thing.
		db.Exec(t, `alter table lapse.run add column c int; create type lapse.e as enum ('a'); create type lapse.t as (a int); create table lapse.n (a int);
			create function lapse.f() returns int language sql as 'select 1'; create domain lapse.d as int`)
		if missing := one[[]string](p, uncommented); len(missing) != 8 {
			t.Errorf("without a comment are: %q", missing)
		}
	})
}
