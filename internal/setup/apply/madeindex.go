package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/schemas"
)

// dropIndexTimeout is how long dropping an index waits for users of its table. The next apply drops what is left.
const dropIndexTimeout = "2s"

// MadeIndex is an index on record.
type MadeIndex struct {
	Relation uint32
	Schema   string
	Name     string
	Policy   schemas.PolicyName
	Table    uint32 // the root
	There    bool   // the index is the one that was made
	Whole    bool   // it is an index of a partitioned table
}

// Index is its name in SQL.
func (m *MadeIndex) Index() string { return schemas.Identifier(m.Schema, m.Name) }

// DropSQL is the statement that drops it.
func (m *MadeIndex) DropSQL() string {
	if m.Whole {
		return "drop index if exists " + m.Index()
	}
	return "drop index concurrently if exists " + m.Index()
}

// MadeIndexes are the indexes on record, those of partitioned tables first, because the others may be dropped with them.
func MadeIndexes(ctx context.Context, q database.Querier) ([]MadeIndex, error) {
	rows, _ := q.Query(ctx, `
		select m.relation, coalesce(n.nspname, m.schema)::text, coalesce(x.relname, m.name)::text, m.policy,
		       coalesce(pg_partition_root(m.relation)::oid, m.relation), x.oid is not null, coalesce(x.relkind = 'I', false)
		  from lapse.made_index m
		  left join (pg_index i join pg_class x on x.oid = i.indexrelid join pg_namespace n on n.oid = x.relnamespace)
		    on i.indrelid = m.relation and (x.oid = m.index or m.index is null and x.relname = m.name)
		 order by x.relkind = 'I' desc nulls last, m.relation, m.name`) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[MadeIndex])
	if err != nil {
		return nil, fmt.Errorf("look for indexes that Lapse made: %w", err)
	}
	return all, nil
}

// unneededIndexes finds Lapse's indexes that no policy asks for any more. If a policy was dropped by an apply that did not end, a change of
// its own drops its index and does nothing else.
func (a *Applier) unneededIndexes(ctx context.Context, changes Changes) (Changes, error) {
	made, err := MadeIndexes(ctx, a.Conn)
	if err != nil {
		return nil, err
	}
	for _, m := range made {
		if slices.ContainsFunc(changes, func(c Change) bool { return c.CreatesIndex() && c.IndexTable() == m.Table }) {
			continue
		}
		at := slices.IndexFunc(changes, func(c Change) bool { return c.Policy == m.Policy })
		if at < 0 {
			at = len(changes)
			changes = append(changes, Change{Change: change.Change{
				Kind: change.Unchanged, Policy: m.Policy, Table: m.Index(), FromState: schemas.Dropped, ToState: schemas.Dropped,
			}})
		}
		c := &changes[at]
		c.unneeded = append(c.unneeded, m)
		c.DropIndexes = append(c.DropIndexes, m.Index())
	}
	return changes, nil
}

// DropMadeIndexes drops indexes that Lapse made, without long waits. It returns what stays, and what to do.
func (a *Applier) DropMadeIndexes(ctx context.Context, made []MadeIndex) (left []string) {
	for i := range made {
		m := &made[i]
		if err := a.dropIndex(ctx, m); err != nil && !a.Conn.IsClosed() {
			left = append(left, fmt.Sprintf("index %s, which Lapse made, is still there (%v): apply again, or: drop index concurrently %s",
				m.Index(), err, m.Index()))
		}
	}
	return left
}

func (a *Applier) dropIndex(ctx context.Context, m *MadeIndex) error {
	if m.There {
		b, err := a.indexing(ctx, m.Relation)
		if err != nil {
			return err
		}
		defer database.Close(b.conn)
		step := &index.Step{Relation: m.Relation, Schema: m.Schema, Name: m.Name, SQL: m.DropSQL()}
		if m.Whole { // the partitions' are dropped with it, at once
			err = b.briefly(ctx, step)
		} else {
			if _, err := b.conn.Exec(ctx, "set lock_timeout = "+schemas.Literal(dropIndexTimeout)); err != nil {
				return fmt.Errorf("set lock_timeout: %w", err)
			}
			err = b.alone(ctx, step)
		}
		if err != nil {
			return err
		}
	}
	if _, err := a.Conn.Exec(ctx, `delete from lapse.made_index where relation = $1 and name = $2`, m.Relation, m.Name); err != nil {
		return fmt.Errorf("take it off the record: %w", err)
	}
	return nil
}
