package resolve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
)

// In the write-ahead log, an update that moves a row to another partition is a delete and an insert. With moves: detect the table's inserts and
// updates are published too, and the auditor makes one event of both: see package evidence. Batches do not depend on it.

// partitionKeysSQL names the columns in the partition keys of table $1 and of its partitions.
const partitionKeysSQL = `
	with recursive tree(relation) as (
	  select $1::oid
	  union
	  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
	)
	select coalesce(array_agg(distinct a.attname::text), '{}')
	  from tree
	  join pg_partitioned_table p on p.partrelid = tree.relation
	  join pg_attribute a on a.attrelid = p.partrelid and a.attnum = any (p.partattrs::int2[])`

// moves complains about a table whose moved rows cannot be recognized.
func (s *resolution) moves(ctx context.Context, t *database.Table) error {
	key := s.r.Definition.Key
	switch {
	case s.p.Moves != policyfile.MovesDetect:
		return nil
	case t.Kind != "p":
		s.complain("moves", fmt.Sprintf("moves: detect is for partitioned tables, and %s is none: take it out", t.Name))
		return nil
	case len(key) == 0:
		return nil // it is refused anyway
	}
	var by []string
	if err := s.tx.QueryRow(ctx, partitionKeysSQL, t.OID).Scan(&by); err != nil {
		return fmt.Errorf("check the partition keys of %s: %w", t.Name, err)
	}
	if !slices.ContainsFunc(key, func(k functions.KeyColumn) bool { return !slices.Contains(by, k.Name) }) {
		s.complain("moves", fmt.Sprintf("moves: detect recognizes a row by the columns of its replica identity that are in no partition key, and that of %s (%s) has none: "+
			"give it a primary key with another column, or take it out", t.Name, strings.Join(keyNames(key), ", ")))
	}
	return nil
}
