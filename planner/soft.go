package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// actionText is what a person sees of the action.
func (s *spec) actionText() string {
	if s.Soft == nil {
		return s.Action
	}
	return fmt.Sprintf("%s, sets %s %s (%d)", s.Action, schemas.Identifier(s.Soft.Name), s.Soft.Type, s.Soft.Number)
}

// softSQL describes column $2 of table $1, and what of the table or its partitions it must not be in.
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
func (s *resolution) soft(ctx context.Context, t *table) error {
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
		return fmt.Errorf("look at column %s of %s: %w", at, t.Name, err)
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

// tableUse is what a policy has of its table. Of each there is one in force at most: lapse.gate sees to it.
type tableUse struct {
	table uint32
	soft  bool
}

func useOf(v *version) tableUse { return tableUse{v.table, v.definition.Soft != nil} }

// shares says with which key a version cannot have its table, and why: another policy has it, or it is not the one that deletes what
// the other one sets.
func (c *comparison) shares(v *version) (key, problem string) {
	d := &v.definition
	same, partner := c.onTable[useOf(v)], c.onTable[tableUse{v.table, d.Soft == nil}]
	if partner != nil && partner.definition.Name == d.Name {
		partner = nil // what the policy was before
	}
	where := func(other schemas.PolicyName) string {
		if c.inFile[other] {
			return "in this file"
		}
		return "that is in force and not in this file: --prune drops it"
	}
	switch {
	case same != nil && same.definition.Name != d.Name:
		return "table", fmt.Sprintf("%s has policy %s already, %s", d.Table, same.definition.Name, where(same.definition.Name))
	case partner == nil:
		return "", ""
	}
	soft, purge := d, &partner.definition
	if d.Soft == nil {
		soft, purge = purge, d
	}
	if age, is := purge.Expire.(*expiry.Age); is && age.Column == soft.Soft.Name {
		if zone := age.Zone; zone != "" && zone != "UTC" {
			return "expire", fmt.Sprintf("policy %s sets %s in UTC, and %s would read it in %s, hours too early or too late: zone: UTC", soft.Name, schemas.Identifier(soft.Soft.Name), purge.Name, zone)
		}
		return "", ""
	}
	return "table", fmt.Sprintf("%s has policy %s already, %s: beside a policy that sets %s there may be one that deletes by it, with expire: { column: %s, after: … }",
		d.Table, partner.definition.Name, where(partner.definition.Name), schemas.Identifier(soft.Soft.Name), soft.Soft.Name)
}
