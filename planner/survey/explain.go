package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
)

// shards lists the policy's leaves, the largest first, and writes the statement that finds rows on that one. No lock is taken on
// a leaf.
func (s *surveyor) shards(ctx context.Context, q database.Querier) ([]database.Relation, error) {
	v, d := &s.survey, s.definition
	all, err := database.Collect[sizedLeaf](ctx, q, `
		select c.oid, l.name, c.reltuples::float8
		  from (`+database.LeavesSQL+`) l(oid, plain, name)
		  join pg_class c on c.oid = l.oid
		 order by c.relpages desc, c.oid`, s.table)
	if err != nil {
		return nil, fmt.Errorf("list the leaves of %s: %w", v.Table, err)
	}
	leaves := make([]database.Relation, 0, len(all))
	for _, l := range all {
		leaves = append(leaves, l.Relation)
		if s.rows >= 0 && l.Rows >= 0 {
			s.rows += l.Rows
		} else {
			s.rows = -1
		}
	}
	for _, o := range d.Order() {
		v.Order = append(v.Order, cmp.Or(o.Column, o.SQL))
	}
	v.Shards = slices.Clone(leaves)
	slices.SortFunc(v.Shards, func(a, b database.Relation) int { return cmp.Compare(a.OID, b.OID) })
	v.Method = Sequential
	err = q.QueryRow(ctx, `select $1::timestamptz::text, coalesce((`+functions.BoundOf(d.Expire, "$1::timestamptz").Value+`)::text, '')`, v.At).Scan(&s.cutoff, &s.bound)
	if err != nil {
		return nil, fmt.Errorf("count back from the cutoff: %w", err)
	}
	if len(leaves) > 0 {
		v.Statement = d.Statement(functions.ShapePick, leaves[0].Name, s.cutoff, s.bound)
	}
	return leaves, s.likely(ctx, q)
}

// laterSQL lists the relations below table $1 that have no row with an instant of column $2 at or before $3, by their bounds or those of a table
// above them. Like lapse.tree_of it locks nothing.
const laterSQL = `
	with recursive tree(relation, later) as (
	  select $1::oid, false
	  union all
	  select c.oid, tree.later or coalesce(b.first > $3::text::timestamp, false)
	    from tree
	   cross join lateral (select i.inhrelid from pg_inherits i where i.inhparent = tree.relation and not i.inhdetachpending offset 0) i
	   cross join lateral (select c.oid, c.relpartbound from pg_class c where c.oid = i.inhrelid and c.relispartition offset 0) c
	    left join lateral (
	      select (regexp_match(pg_get_expr(c.relpartbound, 0), '^FOR VALUES FROM \(''([^'']*)'''))[1]::timestamp as first
	        from pg_partitioned_table k
	        join pg_attribute a on a.attrelid = k.partrelid and a.attnum = k.partattrs[0]
	       where k.partrelid = tree.relation and k.partstrat = 'r' and a.attname = $2
	         and a.atttypid in ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
	    ) b on true
	)
	select tree.relation from tree where tree.later`

// likely keeps the shards that can have due rows, by their bounds.
func (s *surveyor) likely(ctx context.Context, q database.Querier) error {
	v := &s.survey
	v.Likely = v.Shards
	if len(v.Shards) < 2 || !s.definition.Divides() {
		return nil
	}
	rows, _ := q.Query(ctx, laterSQL, s.table, s.definition.Expire.Order().Column, s.bound) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return fmt.Errorf("read the bounds of the partitions of %s: %w", v.Table, err)
	}
	later := map[uint32]bool{}
	for _, oid := range all {
		later[oid] = true
	}
	v.Likely = slices.DeleteFunc(slices.Clone(v.Shards), func(r database.Relation) bool { return later[r.OID] })
	return nil
}

// sizedLeaf is a leaf with its number of rows by the catalog, negative if unknown.
type sizedLeaf struct {
	database.Relation
	Rows float64
}

// plan is the part of EXPLAIN's JSON that says how rows are found.
type plan struct {
	Node  string `json:"Node Type"`
	Index string `json:"Index Name"`
	Plans []plan `json:"Plans"`
}

// read is how rows of the largest leaf would be found; zero if there is no leaf.
func (f *found) read() (p plan, err error) {
	if len(f.Plan) == 0 || string(f.Plan) == "null" {
		return p, nil
	}
	var whole []struct {
		Plan plan `json:"Plan"`
	}
	if err := json.Unmarshal(f.Plan, &whole); err != nil {
		return p, fmt.Errorf("read the plan: %w", err)
	}
	for _, w := range whole {
		p = w.Plan
	}
	return p, nil
}

// method follows a plan down to where rows are read.
func (p *plan) method(sorted bool) (Method, string) {
	sorted = sorted || p.Node == "Sort" || p.Node == "Incremental Sort"
	if p.Index != "" {
		if sorted {
			return IndexSort, p.Index
		}
		return IndexOrder, p.Index
	}
	if len(p.Plans) == 0 {
		return Sequential, ""
	}
	return p.Plans[0].method(sorted)
}
