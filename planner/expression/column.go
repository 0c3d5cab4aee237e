package expression

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Column is a column that an expression reads.
type Column struct {
	Name   string
	Number int16  // its number in the table
	Type   string // as format_type writes it
}

// tableColumn is a column of the policy's table, as a temporary table can have it.
type tableColumn struct {
	Column
	OID       uint32 // the type
	BaseOID   uint32 // a domain's base type, otherwise the type
	Typed     string // the type as SQL
	BaseTyped string
	Collation string // as SQL, "" for the type's own
	Virtual   bool
	Shown     string // the name as PostgreSQL writes it, quoted if necessary
	Trouble   string // why expressions cannot read the column; "" if they can
}

const columnsSQL = `
	select a.attname::text, a.attnum, format_type(a.atttypid, null), a.atttypid, b.oid, format_type(a.atttypid, a.atttypmod),
	       format_type(b.oid, nullif(b.typmod, -1)),
	       coalesce((select format('%I.%I', n.nspname, c.collname)
	                   from pg_collation c join pg_namespace n on n.oid = c.collnamespace
	                  where c.oid = a.attcollation and a.attcollation <> t.typcollation), ''),
	       a.attgenerated = 'v', quote_ident(a.attname), ''
	  from pg_attribute a
	  join pg_type t on t.oid = a.atttypid
	 cross join lateral (
	   with recursive base(oid, typmod, next) as (
	     select t.oid, case when t.typtype = 'd' then t.typtypmod else a.atttypmod end, t.typbasetype
	     union all
	     select u.oid, case when u.typtype = 'd' and base.typmod = -1 then u.typtypmod else base.typmod end, u.typbasetype
	       from base join pg_type u on u.oid = base.next
	   )
	   select base.oid, base.typmod from base where base.next = 0
	 ) b
	 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
	 order by a.attnum`

// loadColumns reads a table's columns from the catalog, and determines which of them expressions can read.
func loadColumns(ctx context.Context, tx pgx.Tx, table uint32) ([]tableColumn, error) {
	rows, err := tx.Query(ctx, columnsSQL, table)
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableColumn])
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	var types []uint32
	for _, c := range all {
		types = append(types, c.BaseOID)
	}
	facts, err := loadTypes(ctx, tx, types)
	if err != nil {
		return nil, err
	}
	for i := range all {
		c := &all[i]
		switch trouble := facts[c.BaseOID].Trouble; {
		case c.Virtual:
			c.Trouble = fmt.Sprintf("column %s is a virtual generated column, which is computed when it is read: make it stored", c.Name)
		case trouble != "":
			c.Trouble = fmt.Sprintf("column %s is of type %s, %s", c.Name, c.Type, trouble)
		}
	}
	return all, nil
}

// readable returns the columns of the temporary table that the author's text is read over.
func readable(all []tableColumn) []tableColumn {
	return slices.DeleteFunc(slices.Clone(all), func(c tableColumn) bool { return c.Trouble != "" })
}

// names returns the columns' names.
func names(columns []tableColumn) []string {
	all := make([]string, 0, len(columns))
	for _, c := range columns {
		all = append(all, c.Name)
	}
	return all
}
