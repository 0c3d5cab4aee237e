package planner

import (
	"context"
	"fmt"
	"strings"

	"lapse/schemas"
)

// leafIndex is the best index of a leaf for finding due rows, if it has one.
type leafIndex struct {
	Leaf  string
	Index string // "" for none
	// Whole says that the key follows the column in the index: rows with one timestamp come in the cursor's order.
	Whole bool
}

// leafIndexSQL finds, for each of relations $1, a btree that begins with column $2; one that goes on with columns $3
// first.
const leafIndexSQL = `
	select format('%I.%I', n.nspname, c.relname), coalesce(i.name, ''), coalesce(i.whole, false)
	  from unnest($1::oid[]) with ordinality w(oid, n)
	  join pg_class c on c.oid = w.oid
	  join pg_namespace n on n.oid = c.relnamespace
	  left join lateral (
	    select format('%I.%I', m.nspname, x.relname) as name,
	           k.names[2:cardinality($3::text[]) + 1] = $3::text[]
	             and (select count(distinct o.n) from unnest(i.indoption::int2[]) o(n)) = 1 as whole
	      from pg_index i
	      join pg_class x on x.oid = i.indexrelid
	      join pg_namespace m on m.oid = x.relnamespace
	      join pg_am on pg_am.oid = x.relam
	     cross join lateral (
	       select array_agg(a.attname::text order by k.n) as names
	         from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
	         left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
	        where k.n <= i.indnkeyatts
	     ) k
	     where i.indrelid = c.oid and i.indisvalid and i.indisready and i.indpred is null and pg_am.amname = 'btree'
	       and k.names[1] = $2
	     order by whole desc, cardinality(k.names), x.relname
	     limit 1
	  ) i on true
	 order by w.n`

// findIndex returns the index that serves, named for the first leaf, and warnings where there is none or a weak one.
func findIndex(ctx context.Context, q Querier, d *Definition, leaves []Relation) (name string, warnings []string, err error) {
	index := d.Expire.Index()
	if index.Warning != "" {
		warnings = append(warnings, index.Warning)
	}
	if index.Column == "" {
		return "", warnings, nil
	}
	oids := make([]uint32, 0, len(leaves))
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	rest := []string{} // what the cursor compares after the column, as far as an index can have the same order
	for _, k := range d.Key {
		if !k.Plain {
			break
		}
		if k.Name != index.Column {
			rest = append(rest, k.Name)
		}
	}
	found, err := collect[leafIndex](ctx, q, leafIndexSQL, oids, index.Column, rest)
	if err != nil {
		return "", nil, fmt.Errorf("look for an index: %w", err)
	}
	wanted := make([]string, 0, len(rest)+1)
	for _, column := range append([]string{index.Column}, rest...) {
		wanted = append(wanted, schemas.Identifier(column))
	}
	var none, weak []string
	for _, f := range found {
		switch {
		case f.Index == "":
			none = append(none, f.Leaf)
		case !f.Whole:
			weak = append(weak, f.Index)
		}
		if name == "" {
			name = f.Index
		}
	}
	create := fmt.Sprintf("create index on %s (%s)", d.Table, strings.Join(wanted, ", "))
	if len(none) > 0 {
		name = ""
		warnings = append(warnings, fmt.Sprintf("no index on %s begins with %s, so that every batch reads the whole of it: %s (concurrently, where the table is in use)",
			some(none), index.Column, create))
	}
	if len(weak) > 0 {
		warnings = append(warnings, fmt.Sprintf("index %s lacks the key, so that rows with one and the same %s are sorted for every batch: %s serves better",
			some(weak), index.Column, create))
	}
	return name, warnings, nil
}

// some lists a few names and counts the rest.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
