package index

import (
	"cmp"
	"context"
	"fmt"

	"lapse/planner/database"
)

// unindexed is a foreign key that a deletion searches without an index.
type unindexed struct {
	Constraint string
	Child      string // the table that has it
	Refers     string // the table that it refers to
	Columns    string // quoted, in the key's order
	Missing    []string
	ChildOID   uint32
	MissingOID []uint32
}

// unindexedSQL finds foreign keys that refer to any of relations $1 and have no index that serves: a btree whose leading
// columns are the key's, in any order, over all rows, or over those where one of the columns is not null. A partitioned child
// is searched partition by partition. Foreign keys are found by their triggers on the table that they refer to.
const unindexedSQL = `
	with keys as (
	  select distinct on (k.conrelid, k.conkey) k.conname, k.conrelid, k.confrelid, k.conkey
	    from unnest($1::oid[]) w(oid)
	    join pg_trigger t on t.tgrelid = w.oid and t.tgconstraint <> 0
	    join pg_constraint k on k.oid = t.tgconstraint and k.contype = 'f' and k.confrelid = w.oid
	   order by k.conrelid, k.conkey, k.conparentid, k.oid
	), bare as (
	  select keys.conrelid, keys.conkey, array_agg(l.name order by l.relation) filter (where not l.served) as missing,
	         array_agg(l.relation order by l.relation) filter (where not l.served) as missing_oids
	    from keys
	   cross join lateral (
	     select l.relation, l.name, exists (
	           select from pg_index i
	             join pg_class x on x.oid = i.indexrelid
	             join pg_am m on m.oid = x.relam
	            cross join lateral (
	              -- a partition may have its columns in another order than its root
	              select array_agg(c.attnum order by c.attnum) as columns
	                from unnest(keys.conkey) n(attnum)
	                join pg_attribute a on a.attrelid = keys.conrelid and a.attnum = n.attnum
	                join pg_attribute c on c.attrelid = l.relation and c.attname = a.attname
	            ) k
	            where i.indrelid = l.relation and i.indisvalid and i.indisready and m.amname = 'btree'
	              and i.indnkeyatts >= cardinality(k.columns)
	              and (select array_agg(n.attnum order by n.attnum)
	                     from unnest((i.indkey::int2[])[0:cardinality(k.columns) - 1]) n(attnum)) = k.columns
	              and (i.indpred is null
	                   or (regexp_match(i.indpred::text, '^\(?\{NULLTEST :arg \{VAR [^{}]*:varattno (\d+) [^{}]*\} :nulltesttype 1 [^{}]*\}\)?$'))[1]::int2
	                      = any (k.columns))) as served
	       from lapse.leaves(keys.conrelid) l
	      where l.kind = 'r'
	   ) l
	   group by keys.conrelid, keys.conkey
	  having not bool_and(l.served)
	      or exists (select from pg_index i join pg_class x on x.oid = i.indexrelid
	                  where i.indrelid = keys.conrelid and x.relkind = 'I' and not i.indisvalid)
	)
	select quote_ident(keys.conname), format('%I.%I', n.nspname, c.relname), format('%I.%I', rn.nspname, r.relname),
	       (select string_agg(quote_ident(a.attname), ', ' order by k.n)
	          from unnest(keys.conkey) with ordinality k(attnum, n)
	          join pg_attribute a on a.attrelid = keys.conrelid and a.attnum = k.attnum),
	       coalesce(bare.missing, '{}'), keys.conrelid, coalesce(bare.missing_oids, '{}')
	  from bare
	  join keys on keys.conrelid = bare.conrelid and keys.conkey = bare.conkey
	  join pg_class c on c.oid = keys.conrelid
	  join pg_namespace n on n.oid = c.relnamespace
	  join pg_class r on r.oid = keys.confrelid
	  join pg_namespace rn on rn.oid = r.relnamespace
	 order by 2, 1`

// Unindexed warns of foreign keys without an index that a delete from the table checks or follows: on the table, its leaves and the tables that
// cascades reach. Without it each deleted row reads the whole child, and an update of the row waits.
func Unindexed(ctx context.Context, q database.Querier, table uint32, leaves, cascades []database.Relation) ([]string, error) {
	advice, err := Children(ctx, q, table, leaves, cascades)
	warnings := make([]string, 0, len(advice))
	for _, a := range advice {
		warnings = append(warnings, a.String())
	}
	return warnings, err
}

// Children says which foreign keys, of those that a delete from the table checks or follows, lack an index.
func Children(ctx context.Context, q database.Querier, table uint32, leaves, cascades []database.Relation) ([]Advice, error) {
	relations := []uint32{table}
	for _, r := range append(append([]database.Relation{}, leaves...), cascades...) {
		relations = append(relations, r.OID)
	}
	found, err := database.Collect[unindexed](ctx, q, unindexedSQL, relations)
	if err != nil {
		return nil, fmt.Errorf("look for indexes of foreign keys: %w", err)
	}
	all := make([]Advice, 0, len(found))
	for i := range found {
		advice, err := found[i].advice(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(advice.Steps) > 0 {
			all = append(all, advice)
		}
	}
	return all, nil
}

func (f *unindexed) advice(ctx context.Context, q database.Querier) (Advice, error) {
	on := ""
	if len(f.Missing) != 1 || f.Missing[0] != f.Child {
		on = " on " + cmp.Or(some(f.Missing), "partitions made later")
	}
	advice := Advice{Problem: fmt.Sprintf("no index serves foreign key %s of %s%s, so that each row deleted from %s reads the whole of it",
		f.Constraint, f.Child, on, f.Refers)}
	tree, err := treeOf(ctx, q, f.ChildOID, false)
	if err != nil {
		return advice, err
	}
	tree.want("("+f.Columns+")", AdvisedPrefix)
	for _, leaf := range f.MissingOID {
		tree.lacks[leaf] = true
	}
	if err := tree.load(ctx, q); err != nil {
		return advice, err
	}
	advice.Steps = tree.steps()
	return advice, nil
}
