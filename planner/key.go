package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// identity is the replica identity of one leaf: what its deletes are named by in the write-ahead log.
type identity struct {
	Leaf    string // its name
	Setting string // pg_class.relreplident
	Primary bool   // there is a primary key, deferrable or not
	Names   []string
	Numbers []int16
	Types   []string
	Plain   []bool
}

// identitySQL finds the index that identifies the rows of each of relations $1, as replication does, and its columns in
// the index's order. A column is plain if its type, or what its domain is over, is one whose text form can be read back
// and whose ordering is built in; a collation that calls different texts equal is not.
const identitySQL = `
	select format('%I.%I', n.nspname, c.relname), c.relreplident::text,
	       exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary),
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

// findKey returns the columns that name a row. All leaves must agree: a batch's cursor, and an event's key, are made of
// them.
func findKey(ctx context.Context, q Querier, t *table, leaves []Relation) (key []KeyColumn, problems []string, err error) {
	oids := []uint32{t.OID}
	for _, l := range leaves {
		if l.OID != t.OID {
			oids = append(oids, l.OID)
		}
	}
	all, err := collect[identity](ctx, q, identitySQL, oids)
	if err != nil {
		return nil, nil, fmt.Errorf("find the replica identity of %s: %w", t.Name, err)
	}
	first := all[0]
	if t.Kind == "p" && len(first.Names) == 0 {
		// A partition made tomorrow is published with its root at once, and only the root's primary key is sure to be its.
		return nil, []string{fmt.Sprintf("%s has no primary key of its own, so that a partition made later could be without one: alter table %s add primary key", t.Name, t.Name)}, nil
	}
	for _, one := range all {
		switch problem := one.unusable(); {
		case problem != "":
			problems = append(problems, problem)
		case len(first.Names) > 0 && !sameNames(one.Names, first.Names):
			problems = append(problems, fmt.Sprintf("%s identifies its rows by (%s) and %s by (%s): give them the same replica identity",
				first.Leaf, strings.Join(first.Names, ", "), one.Leaf, strings.Join(one.Names, ", ")))
		}
	}
	for i, name := range first.Names {
		key = append(key, KeyColumn{Name: name, Number: first.Numbers[i], Type: first.Types[i], Plain: first.Plain[i]})
	}
	return key, problems, nil
}

// unusable says why deletes from the leaf cannot be named in the write-ahead log, or "". Publishing such a table would
// make the application's own deletes fail.
func (i *identity) unusable() string {
	switch {
	case len(i.Names) > 0:
		return ""
	case i.Setting == "f":
		return fmt.Sprintf("%s has replica identity full, by which every column would go into events: alter table %s replica identity default, or using index", i.Leaf, i.Leaf)
	case i.Setting == "n":
		return fmt.Sprintf("%s has replica identity nothing: alter table %s replica identity default, or using index", i.Leaf, i.Leaf)
	case i.Setting == "i":
		return fmt.Sprintf("the index that %s had as its replica identity is gone or invalid: alter table %s replica identity using index", i.Leaf, i.Leaf)
	case i.Primary:
		return fmt.Sprintf("the primary key of %s is deferrable, which is no replica identity: make it not deferrable, or alter table %s replica identity using index", i.Leaf, i.Leaf)
	}
	return fmt.Sprintf("%s has no primary key: add one, or alter table %s replica identity using index, over a unique index on columns that are not null", i.Leaf, i.Leaf)
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
