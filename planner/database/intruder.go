package database

import (
	"context"
	"fmt"
)

// intruder is a trigger, a rule or a function that would run inside a deletion, or a foreign key that would move rows.
type intruder struct {
	Kind     string // trigger, rule, foreign key or function
	Name     string
	Relation string // where it was made: a partition's copy of a trigger belongs to the root
}

// IntrudersSQL checks table $1, or those of its partitions that have none themselves, as lapse.inspect does; $2: its rows are updated.
const IntrudersSQL = `
	with recursive tree(relation) as (
	  select $1::oid
	  union
	  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
	), found as (
	  select distinct i.relation, i.name
	    from lapse.intruders(array(
	           select tree.relation from tree where not exists (select from pg_inherits i where i.inhparent = tree.relation)), $2) i
	), up(at, relation, parent, name) as (
	  select t.oid, t.tgrelid, t.tgparentid, t.tgname
	    from found f join pg_trigger t on t.tgrelid = f.relation and t.tgname = f.name
	  union
	  select t.oid, t.tgrelid, t.tgparentid, t.tgname
	    from up join pg_trigger t on t.oid = up.parent
	), made(kind, name, relation) as (
	  select 'trigger', up.name, up.relation from up where up.parent = 0
	  union
	  select 'rule', f.name, f.relation
	    from found f join pg_rewrite r on r.ev_class = f.relation and r.rulename = f.name
	  union
	  select 'foreign key', f.name, f.relation
	    from found f join pg_constraint k on k.conrelid = f.relation and k.conname = f.name and k.contype = 'f'
	  union
	  select 'function', f.name, f.relation
	    from found f
	   where not exists (select from pg_trigger t where t.tgrelid = f.relation and t.tgname = f.name)
	     and not exists (select from pg_rewrite r where r.ev_class = f.relation and r.rulename = f.name)
	     and not exists (select from pg_constraint k where k.conrelid = f.relation and k.conname = f.name and k.contype = 'f')
	)
	select m.kind, quote_ident(m.name), format('%I.%I', n.nspname, c.relname)
	  from made m
	  join pg_class c on c.oid = m.relation
	  join pg_namespace n on n.oid = c.relnamespace
	 order by 3, 2`

// FindIntruders lists what would run inside deletions from the table, or updates of it, and inside surveys of it, each with what to do about
// it.
func FindIntruders(ctx context.Context, q Querier, t *Table, updates bool) ([]string, error) {
	found, err := Collect[intruder](ctx, q, IntrudersSQL, t.OID, updates)
	if err != nil {
		return nil, fmt.Errorf("list triggers and rules: %w", err)
	}
	problems := make([]string, 0, len(found))
	for _, i := range found {
		switch i.Kind {
		case "function":
			problems = append(problems, fmt.Sprintf("function %s, used by an index, statistics, a check, a default, a generated column, a partition key, an operator, a domain or a cast of %s, would run inside the deletion with rights that its owner may not have: have a superuser own it, or drop what uses it",
				i.Name, i.Relation))
		case "foreign key":
			problems = append(problems, MovingKey(i.Name, i.Relation))
		default:
			problems = append(problems, fmt.Sprintf("%s %s on %s would run inside the deletion: write triggers: trusted if it only writes elsewhere (it runs with the rights of the table's owner), or disable it: alter table %s disable %s %s",
				i.Kind, i.Name, i.Relation, i.Relation, i.Kind, i.Name))
		}
	}
	return problems, nil
}

// MovingKey is what is wrong with a foreign key that would move rows.
func MovingKey(name, relation string) string {
	return fmt.Sprintf("foreign key %s of %s would move rows to another partition, which is a delete to readers of the write-ahead log: make it on delete cascade or no action",
		name, relation)
}

// loop is a foreign key that leads from a table back to itself.
type loop struct {
	Constraint string
	Table      string
}

// FindLoops finds foreign keys through which a delete would delete other rows of the same table, due or not.
func FindLoops(ctx context.Context, q Querier, t *Table, leaves, cascades []Relation) ([]string, error) {
	family := map[uint32]bool{t.OID: true}
	for _, l := range leaves {
		family[l.OID] = true
	}
	back := false
	for _, c := range cascades {
		back = back || family[c.OID]
	}
	if !back {
		return nil, nil
	}
	oids := make([]uint32, 0, len(family))
	for oid := range family {
		oids = append(oids, oid)
	}
	found, err := Collect[loop](ctx, q, `
		select quote_ident(k.conname), format('%I.%I', n.nspname, c.relname)
		  from pg_constraint k
		  join pg_class c on c.oid = k.conrelid
		  join pg_namespace n on n.oid = c.relnamespace
		 where k.contype = 'f' and k.confdeltype = 'c' and k.conparentid = 0 and k.conrelid = any ($1::oid[])
		 order by 2, 1`, oids)
	if err != nil {
		return nil, fmt.Errorf("follow the foreign keys: %w", err)
	}
	problems := make([]string, 0, len(found))
	for _, l := range found {
		problems = append(problems, fmt.Sprintf("foreign key %s of %s leads back to it with on delete cascade, so that rows that are not due would go too: make it on delete set null or no action",
			l.Constraint, l.Table))
	}
	return problems, nil
}
