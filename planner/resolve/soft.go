package resolve

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// softSQL describes column $2 of table $1, and what of the table or its partitions must not contain it.
const softSQL = `
	with recursive tree(relation) as (
	  select $1::oid
	  union
	  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
	), col as (
	  select a.attrelid, a.attnum, a.attnotnull, a.attgenerated <> '' or a.attidentity <> '' as made, format_type(a.atttypid, null) as type
	    from tree join pg_attribute a on a.attrelid = tree.relation
	   where a.attname = $2 and a.attnum > 0 and not a.attisdropped
	)
	select own.attnum, own.type, (select bool_or(col.attnotnull) from col), (select bool_or(col.made) from col),
	       coalesce((select min(format('index %I', x.relname))
	                   from col
	                   join pg_index i on i.indrelid = col.attrelid and (i.indisunique or i.indisreplident)
	                   join pg_class x on x.oid = i.indexrelid
	                  where col.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])),
	                (select min(format('foreign key %I', k.conname))
	                   from col
	                   join pg_constraint k on k.contype = 'f' and (k.conrelid = col.attrelid and col.attnum = any (k.conkey)
	                                                                or k.confrelid = col.attrelid and col.attnum = any (k.confkey))),
	                (select 'the partition key' from col
	                   join pg_partitioned_table p on p.partrelid = col.attrelid
	                  where col.attnum = any (p.partattrs::int2[])
	                     or exists (select from pg_depend d
	                                 where d.classid = 'pg_class'::regclass and d.objid = p.partrelid and d.objsubid = col.attnum
	                                   and d.refclassid = 'pg_class'::regclass and d.refobjid = p.partrelid and d.refobjsubid = 0 and d.deptype = 'i')
	                  limit 1), '')
	  from col own
	 where own.attrelid = $1`

// soft finds the column that a soft action sets.
func (s *resolution) soft(ctx context.Context, t *database.Table) error {
	name := s.p.Action.Column
	if s.p.Action.Kind != policyfile.ActionSoft {
		return nil
	}
	const key = "action.soft.column"
	c := expiry.Column{Name: name}
	var notNull, made bool
	var in string
	err := s.tx.QueryRow(ctx, softSQL, t.OID, name).Scan(&c.Number, &c.Type, &notNull, &made, &in)
	at := schemas.Identifier(name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		s.complain(key, fmt.Sprintf("%s has no column %s: alter table %s add column %s timestamptz", t.Name, at, t.Name, at))
		return nil
	case err != nil:
		return fmt.Errorf("check column %s of %s: %w", at, t.Name, err)
	case c.Type != expiry.Timestamptz && c.Type != expiry.Timestamp && c.Type != expiry.Date && c.Type != "boolean":
		s.complain(key, fmt.Sprintf("column %s of %s is %s: a soft action sets a timestamptz, timestamp, date or boolean", at, t.Name, c.Type))
	case made:
		s.complain(key, fmt.Sprintf("column %s of %s is generated: name one that can be set", at, t.Name))
	case notNull && c.Type != "boolean":
		s.complain(key, fmt.Sprintf("column %s of %s is not null, so that no row is without it: alter table %s alter column %s drop not null", at, t.Name, t.Name, at))
	case in != "":
		s.complain(key, fmt.Sprintf("column %s of %s is in %s, and a column that is set must be in no key: name another", at, t.Name, in))
	}
	for _, read := range s.r.Definition.Expire.Columns() {
		if read.Name == name {
			s.complain(key, fmt.Sprintf("column %s says when rows of %s are due, and cannot be what is set when they are", at, t.Name))
		}
	}
	s.r.Definition.Soft = &c
	return nil
}
