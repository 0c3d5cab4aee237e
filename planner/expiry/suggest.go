package expiry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/yamldoc"
)

// tablesSQL lists what a policy can be on, by name and within a name by schema; of one name, if $1 is not empty.
const tablesSQL = `
	select n.nspname || '.' || c.relname, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
	  from pg_class c
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p'
	   and n.nspname not in ('pg_catalog', 'information_schema', 'lapse')
	   and ($1 = '' or c.relname = $1)
	 order by c.relname, n.nspname`

// TableName is a table's name as it is compared with others, and as SQL wants it.
type TableName struct{ Plain, SQL string }

// TablesNamed are the tables of a name, or all.
func TablesNamed(ctx context.Context, q Querier, name string) ([]TableName, error) {
	rows, err := q.Query(ctx, tablesSQL, name)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TableName])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return all, nil
}

// SuggestTable ends a complaint about a table that is not there with the name that was most likely meant: the nearest one of
// the same table in other schemas, or of all.
func SuggestTable(ctx context.Context, q Querier, schema, name string) (string, error) {
	for _, only := range []string{name, ""} {
		all, err := TablesNamed(ctx, q, only)
		if err != nil {
			return "", err
		}
		var names []string
		spelt := map[string]string{}
		for _, t := range all {
			names = append(names, t.Plain)
			spelt[t.Plain] = t.SQL
		}
		near := yamldoc.Nearest(schema+"."+name, names)
		if only != "" && near == "" && len(names) > 0 {
			near = names[0]
		}
		if near != "" {
			return fmt.Sprintf("; did you mean %s?", spelt[near]), nil
		}
	}
	return "", nil
}
