package database

import (
	"context"
	"fmt"
)

// Relation is a table or partition.
type Relation struct {
	OID  uint32 `json:"oid"`
	Name string `json:"name"` // schema.table, quoted where SQL wants it
}

// Cascades returns the relations in which a delete on leaf deletes rows through foreign keys with ON DELETE CASCADE, to any depth, ascending.
// Partitions are listed one by one, as the write-ahead log names them. A claim must list exactly these.
func Cascades(ctx context.Context, q Querier, leaf uint32) ([]uint32, error) {
	oids := []uint32{}
	err := q.QueryRow(ctx, `
		select coalesce(array_agg(r.relation order by r.relation), '{}')
		  from lapse.reach(array[$1::oid]) r
		 where r.deletes`, leaf).Scan(&oids)
	if err != nil {
		return nil, fmt.Errorf("follow the foreign keys of relation %d: %w", leaf, err)
	}
	return oids, nil
}

// CascadeLeaves returns the relations in which deletes on any of relations delete rows, as the write-ahead log names them, ascending by oid.
func CascadeLeaves(ctx context.Context, q Querier, relations []uint32) ([]Relation, error) {
	all, err := Collect[Relation](ctx, q, `
		select distinct c.oid, format('%I.%I', n.nspname, c.relname)
		  from lapse.reach($1::oid[]) r
		  join pg_class c on c.oid = r.relation
		  join pg_namespace n on n.oid = c.relnamespace
		 where r.deletes
		 order by c.oid`, relations)
	if err != nil {
		return nil, fmt.Errorf("follow the foreign keys: %w", err)
	}
	return all, nil
}

// CascadeRoots is CascadeLeaves with partitions named by their root, by name: what a publication lists.
func CascadeRoots(ctx context.Context, q Querier, relations []uint32) ([]Relation, error) {
	all, err := Collect[Relation](ctx, q, `
		select distinct c.oid, format('%I.%I', n.nspname, c.relname) as name
		  from lapse.reach($1::oid[]) r
		  join pg_class c on c.oid = coalesce(pg_partition_root(r.relation), r.relation)
		  join pg_namespace n on n.oid = c.relnamespace
		 where r.deletes
		 order by name`, relations)
	if err != nil {
		return nil, fmt.Errorf("follow the foreign keys: %w", err)
	}
	return all, nil
}

// Names are the relations' names.
func Names(relations []Relation) []string {
	all := make([]string, 0, len(relations))
	for _, r := range relations {
		all = append(all, r.Name)
	}
	return all
}

// blocking is a foreign key that prevents the deletion of rows that others refer to.
type blocking struct {
	Constraint string
	Child      string // the table that has it
	Refers     string // the table that it refers to
}

// blockingSQL finds foreign keys without an action that refer to any of relations $1, as they were defined. They are found by their triggers on
// the table that they refer to, since pg_constraint has no index on it; a key that is not enforced has none.
const blockingSQL = `
	with recursive k(oid, parent, name, child, refers) as (
	  select k.oid, k.conparentid, k.conname, k.conrelid, k.confrelid
	    from unnest($1::oid[]) w(oid)
	   cross join lateral (select t.tgconstraint from pg_trigger t where t.tgrelid = w.oid and t.tgconstraint <> 0 offset 0) t
	    join pg_constraint k on k.oid = t.tgconstraint and k.contype = 'f' and k.confrelid = w.oid and k.confdeltype in ('a', 'r')
	  union
	  select up.oid, up.conparentid, up.conname, up.conrelid, up.confrelid
	    from k join pg_constraint up on up.oid = k.parent
	)
	select distinct quote_ident(k.name), format('%I.%I', n.nspname, c.relname), format('%I.%I', rn.nspname, r.relname)
	  from k
	  join pg_class c on c.oid = k.child
	  join pg_namespace n on n.oid = c.relnamespace
	  join pg_class r on r.oid = k.refers
	  join pg_namespace rn on rn.oid = r.relnamespace
	 where k.parent = 0
	 order by 2, 1`

// FindBlocking warns of foreign keys without an action that refer to the table, or to a table in which cascades delete.
func FindBlocking(ctx context.Context, q Querier, table uint32, leaves, cascades []Relation) ([]string, error) {
	relations := []uint32{table}
	for _, r := range append(append([]Relation{}, leaves...), cascades...) {
		relations = append(relations, r.OID)
	}
	found, err := Collect[blocking](ctx, q, blockingSQL, relations)
	if err != nil {
		return nil, fmt.Errorf("look for foreign keys that keep rows: %w", err)
	}
	warnings := make([]string, 0, len(found))
	for _, f := range found {
		warnings = append(warnings, fmt.Sprintf("a row of %s that rows of %s still refer to (constraint %s) cannot be deleted: it waits in quarantine until they are gone, or the constraint has on delete cascade or set null",
			f.Refers, f.Child, f.Constraint))
	}
	return warnings, nil
}

// Leaf is a partition that holds rows, or the table itself.
type Leaf struct {
	OID   uint32
	Plain bool // not a foreign table
	Name  string
}

// LeavesSQL lists the leaves of table $1. It locks none of them.
const LeavesSQL = `select l.relation, l.kind = 'r', l.name from lapse.leaves($1) l order by l.relation`
