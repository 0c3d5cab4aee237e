package resolve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
)

// identity is the replica identity of one leaf: the columns that name its deleted rows in the write-ahead log.
type identity struct {
	Leaf    string   // its name
	Names   []string // empty if it has no usable one
	Numbers []int16
	Types   []string
	Plain   []bool
}

// identitySQL finds the index that identifies the rows of each of relations $1, as replication does, and its columns in the index's order. A
// column is plain if its type, or the type under its domain, can be read back from its text and has a built-in ordering, and if its
// collation does not treat different texts as equal.
const identitySQL = `
	select format('%I.%I', n.nspname, c.relname),
	       coalesce(k.names, '{}'), coalesce(k.numbers, '{}'), coalesce(k.types, '{}'), coalesce(k.plain, '{}')
	  from unnest($1::oid[]) with ordinality w(oid, n)
	  join pg_class c on c.oid = w.oid
	  join pg_namespace n on n.oid = c.relnamespace
	  left join lateral (
	    select i.indkey, i.indnkeyatts, i.indexrelid
	      from pg_index i
	     where i.indrelid = c.oid and i.indisvalid and i.indimmediate
	       and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
	  ) i on true
	  left join lateral (
	    select array_agg(a.attname::text order by k.n) as names,
	           array_agg(a.attnum order by k.n) as numbers,
	           array_agg(format_type(b.oid, nullif(case when t.typtype = 'd' then b.typmod else a.atttypmod end, -1)) order by k.n) as types,
	           array_agg(b.oid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'numeric'::regtype,
	                               'bool'::regtype, 'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'date'::regtype,
	                               'timestamp'::regtype, 'timestamptz'::regtype, 'bytea'::regtype, 'inet'::regtype,
	                               'float4'::regtype, 'float8'::regtype)
	                     and coalesce(o.collisdeterministic, true) order by k.n) as plain
	      from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
	      join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
	      join pg_type t on t.oid = a.atttypid
	      left join pg_collation o on o.oid = a.attcollation
	     cross join lateral (
	       with recursive base(oid, typmod, next) as (
	         select t.oid, t.typtypmod, t.typbasetype
	         union all
	         select u.oid, case when base.typmod = -1 then u.typtypmod else base.typmod end, u.typbasetype
	           from base join pg_type u on u.oid = base.next
	       )
	       select base.oid, base.typmod from base where base.next = 0
	     ) b
	     where k.n <= i.indnkeyatts
	  ) k on true
	 order by w.n`

// Fit says why the deletes of a table, or of one of its partitions, could not be published, and what to do; "" if they could. It is called if a
// table has no key. nil gives no reason. Package replication has the answer, which planner may not import.
type Fit func(ctx context.Context, tx pgx.Tx, table uint32) (problem string, err error)

// findKey returns the columns that identify a row. All leaves must have the same ones, because a batch's cursor, and an event's key, consist of
// them. A partition made later is published with its root at once, and only the root's primary key is sure to be its key too. So a root must have
// one.
func findKey(ctx context.Context, tx pgx.Tx, t *database.Table, leaves []database.Relation, fit Fit) (key []functions.KeyColumn, problems []string, err error) {
	oids := []uint32{t.OID}
	for _, l := range leaves {
		if l.OID != t.OID {
			oids = append(oids, l.OID)
		}
	}
	all, err := database.Collect[identity](ctx, tx, identitySQL, oids)
	if err != nil {
		return nil, nil, fmt.Errorf("find the replica identity of %s: %w", t.Name, err)
	}
	if i := slices.IndexFunc(all, func(one identity) bool { return len(one.Names) == 0 }); i >= 0 {
		problem := all[i].Leaf + " has no replica identity that names its rows"
		if fit != nil {
			why, err := fit(ctx, tx, t.OID)
			if err != nil {
				return nil, nil, err
			}
			problem = cmp.Or(why, problem)
		}
		return nil, []string{problem}, nil
	}
	first := all[0]
	for _, one := range all {
		if !sameNames(one.Names, first.Names) {
			problems = append(problems, fmt.Sprintf("%s identifies its rows by (%s) and %s by (%s): give them the same replica identity",
				first.Leaf, strings.Join(first.Names, ", "), one.Leaf, strings.Join(one.Names, ", ")))
		}
	}
	for i, name := range first.Names {
		key = append(key, functions.KeyColumn{Name: name, Number: first.Numbers[i], Type: first.Types[i], Plain: first.Plain[i]})
	}
	return key, problems, nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
