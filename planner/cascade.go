package planner

import (
	"context"
	"fmt"
)

// Relation is a table or partition.
type Relation struct {
	OID  uint32 `json:"oid"`
	Name string `json:"name"` // schema.table, quoted where SQL wants it
}

// Cascades returns the relations that a delete on leaf takes rows of along, through foreign keys with ON DELETE CASCADE
// to any depth, ascending. Partitions are listed one by one, as the write-ahead log names them. It is what a claim must
// list.
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

// cascadeLeaves returns what deletes on any of relations take along, as the write-ahead log names it, ascending by oid.
func cascadeLeaves(ctx context.Context, q Querier, relations []uint32) ([]Relation, error) {
	all, err := collect[Relation](ctx, q, `
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

// cascadeRoots is cascadeLeaves with partitions named by their root, by name: what a publication lists.
func cascadeRoots(ctx context.Context, q Querier, relations []uint32) ([]Relation, error) {
	all, err := collect[Relation](ctx, q, `
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

func names(relations []Relation) []string {
	all := make([]string, 0, len(relations))
	for _, r := range relations {
		all = append(all, r.Name)
	}
	return all
}
