package run

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/planner/record"
)

// Inspection is what blocks a policy in force, or slows it down, by the catalog. It involves no rows of a user's table.
type Inspection struct {
	Leaves    []database.Relation
	Published []database.Relation // the table, and the roots of what cascades reach
	Index     *index.Advice
	Stale     *index.Advice  // the index of a soft policy contains rows set long ago
	Unhelped  string         // why no index helps, "" if one does
	Children  []index.Advice // foreign keys without an index
	Intruders []Intruder
	Blocking  []Blocking
	Set       []Blocking          // foreign keys that now contain the column that a soft action sets
	Unlogged  []database.Relation // partitions whose deletes are not in the write-ahead log
	Changed   []string            // columns that changed since apply, as "table: column, column"; nothing else is checked then
}

// Intruder is a trigger, a rule or a function that would run inside a deletion, or a foreign key that would move rows.
type Intruder struct{ Kind, Name, Relation string }

// Blocking is a foreign key without action: a row that it refers to cannot be deleted.
type Blocking struct{ Constraint, Child, Refers string }

// Inspect checks the table of a policy in force.
func Inspect(ctx context.Context, db database.DB, p *record.InForce) (*Inspection, error) {
	i := &Inspection{}
	err := database.Pinned(ctx, db, func(tx pgx.Tx) error { return i.read(ctx, tx, p) })
	if err != nil {
		return nil, fmt.Errorf("check the table of policy %s: %w", p.Name, err)
	}
	return i, nil
}

func (i *Inspection) read(ctx context.Context, tx pgx.Tx, p *record.InForce) (err error) {
	if i.Changed, err = changedColumns(ctx, tx, p); err != nil || len(i.Changed) > 0 {
		return err
	}
	t := &database.Table{OID: p.TableOID, Name: p.TableName}
	if i.Leaves, _, err = database.FindLeaves(ctx, tx, t); err != nil {
		return err
	}
	oids := []uint32{t.OID}
	for _, l := range i.Leaves {
		oids = append(oids, l.OID)
	}
	var cascades, roots []database.Relation
	if p.Definition.Soft == nil {
		if cascades, err = database.CascadeLeaves(ctx, tx, oids); err != nil {
			return err
		}
		if len(cascades) > 0 {
			if roots, err = database.CascadeRoots(ctx, tx, oids); err != nil {
				return err
			}
		}
	}
	i.Published = append([]database.Relation{{OID: t.OID, Name: t.Name}}, roots...)
	found, err := index.Find(ctx, tx, &p.Definition, i.Leaves, index.AdvisedPrefix)
	if err != nil {
		return err
	}
	i.Index, i.Stale, i.Unhelped = found.None, found.Stale, p.Definition.Expire.Index().Warning
	if !p.Spec.Triggers.Trusted {
		if i.Intruders, err = intrudersOf(ctx, tx, t, p.Definition.Soft != nil); err != nil {
			return err
		}
	}
	if err := i.rows(ctx, tx, oids, cascades); err != nil {
		return err
	}
	if p.Definition.Soft != nil {
		i.Blocking = nil // references to a row do not prevent setting its column
		i.Set, err = keysOfSet(ctx, tx, oids, p.Definition.Soft.Name)
		return err
	}
	i.Children, err = index.Children(ctx, tx, t.OID, i.Leaves, cascades)
	return err
}

// changedColumns makes the check of lapse.same_table, which only the catalog's owner may call.
func changedColumns(ctx context.Context, q database.Querier, p *record.InForce) ([]string, error) {
	all, err := database.Collect[struct{ Name string }](ctx, q, `
		select r.name || ': ' || c.changed
		  from lapse.policy v
		 cross join lateral (select v.table_oid, v.table_name, v.columns
		                     union all select j.oid, j.name, j.columns from jsonb_to_recordset(v.joined) j(oid oid, name text, columns jsonb)) r(oid, name, columns)
		 cross join lateral lapse.changed_columns(r.oid, r.columns) c(changed)
		 where v.id = $1 and v.version = $2 and c.changed is not null
		 order by 1`, p.ID, p.Version)
	if err != nil {
		return nil, fmt.Errorf("look for columns that were changed: %w", err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names, nil
}

// keysOfSet makes the check that lapse.set_key makes in each batch.
func keysOfSet(ctx context.Context, q database.Querier, relations []uint32, column string) ([]Blocking, error) {
	all, err := database.Collect[Blocking](ctx, q, `
		select distinct quote_ident(k.conname), format('%I.%I', n.nspname, c.relname), ''
		  from pg_attribute a
		  join pg_constraint k on k.contype = 'f' and (k.conrelid = a.attrelid and a.attnum = any (k.conkey) or k.confrelid = a.attrelid and a.attnum = any (k.confkey))
		  join pg_class c on c.oid = k.conrelid
		  join pg_namespace n on n.oid = c.relnamespace
		 where a.attrelid = any ($1) and a.attname = $2 and not a.attisdropped and k.conparentid = 0
		 order by 2, 1`, relations, column)
	if err != nil {
		return nil, fmt.Errorf("look for foreign keys of the column that is set: %w", err)
	}
	return all, nil
}

func intrudersOf(ctx context.Context, q database.Querier, t *database.Table, updates bool) ([]Intruder, error) {
	all, err := database.Collect[Intruder](ctx, q, `select kind, name, relation from (`+database.IntrudersSQL+`) f(kind, name, relation)`, t.OID, updates)
	if err != nil {
		return nil, fmt.Errorf("list triggers and rules: %w", err)
	}
	return all, nil
}

// rows looks for what prevents single rows from being deleted, or their deletes from being in the log.
func (i *Inspection) rows(ctx context.Context, q database.Querier, oids []uint32, cascades []database.Relation) (err error) {
	for _, c := range cascades {
		oids = append(oids, c.OID)
	}
	i.Blocking, err = database.Collect[Blocking](ctx, q, `
		select distinct quote_ident(k.conname), format('%I.%I', n.nspname, c.relname), format('%I.%I', rn.nspname, r.relname)
		  from unnest($1::oid[]) w(oid)
		  join pg_trigger t on t.tgrelid = w.oid and t.tgconstraint <> 0
		  join pg_constraint k on k.oid = t.tgconstraint and k.contype = 'f' and k.confrelid = w.oid
		   and k.confdeltype in ('a', 'r') and k.conparentid = 0
		  join pg_class c on c.oid = k.conrelid
		  join pg_namespace n on n.oid = c.relnamespace
		  join pg_class r on r.oid = k.confrelid
		  join pg_namespace rn on rn.oid = r.relnamespace
		 order by 2, 1`, oids)
	if err != nil {
		return fmt.Errorf("look for foreign keys without action: %w", err)
	}
	i.Unlogged, err = database.Collect[database.Relation](ctx, q, `
		select c.oid, format('%I.%I', n.nspname, c.relname)
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace
		 where c.oid = any ($1) and c.relkind = 'r' and c.relpersistence = 'u'
		 order by 2`, oids)
	if err != nil {
		return fmt.Errorf("look for unlogged tables: %w", err)
	}
	return nil
}
