package database

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// Table is what the catalog says about a policy's table.
type Table struct {
	OID         uint32
	Name        string
	Kind        string // pg_class.relkind
	Persistence string
	Partition   string // the root's name, if it is a partition
	Inherits    bool   // old-style inheritance, either side
	System      bool
	Owner       string
	OwnerOID    uint32
	Triggers    bool // it has triggers, or had some
}

// ReferredTo is false if certainly no foreign key refers to the table: each has triggers there. A partition may be referred to by itself.
func (t *Table) ReferredTo() bool { return t.Kind != "r" || t.Triggers }

const tableSQL = `
	select c.oid, format('%I.%I', n.nspname, c.relname), c.relkind::text, c.relpersistence::text,
	       coalesce((select format('%I.%I', m.nspname, r.relname)
	                   from pg_class r join pg_namespace m on m.oid = r.relnamespace
	                  where c.relispartition and r.oid = pg_partition_root(c.oid)), ''),
	       c.relkind = 'r' and not c.relispartition
	         and exists (select from pg_inherits i where c.oid in (i.inhparent, i.inhrelid)),
	       n.nspname in ('pg_catalog', 'information_schema', 'lapse') or n.nspname like 'pg\_toast%',
	       pg_get_userbyid(c.relowner), c.relowner, c.relhastriggers
	  from pg_class c
	  join pg_namespace n on n.oid = c.relnamespace
	 where n.nspname = $1 and c.relname = $2`

// plainName is a name that stands for itself in SQL.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*$`)

// PlainName are the parts of a table's name that stands for itself in SQL.
func PlainName(written string) (schema, table string, plain bool) {
	schema, table, _ = strings.Cut(written, ".")
	return schema, table, plainName.MatchString(written)
}

// parseName parses a name as SQL does.
func parseName(ctx context.Context, tx pgx.Tx, written string) (parts []string, err error) {
	if schema, table, plain := PlainName(written); plain {
		return []string{schema, table}, nil
	}
	err = expiry.Attempt(ctx, tx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `select parse_ident($1)`, written).Scan(&parts)
	})
	return parts, err
}

// FindTable parses the table's name as SQL does, and finds the table. problem is for the person who wrote the name.
func FindTable(ctx context.Context, tx pgx.Tx, written string) (t Table, problem string, err error) {
	parts, err := parseName(ctx, tx, written)
	switch {
	case expiry.IsDataException(err):
		return t, fmt.Sprintf("%s is no table name: write schema.table, quoted as in SQL", yamldoc.Quote(written)), nil
	case err != nil:
		return t, "", fmt.Errorf("read a table name: %w", err)
	case len(parts) == 1:
		problem, err = withoutSchema(ctx, tx, parts[0])
		return t, problem, err
	case len(parts) > 2:
		return t, fmt.Sprintf("%s has more than a schema and a table", yamldoc.Quote(written)), nil
	}
	rows, err := Collect[Table](ctx, tx, tableSQL, parts[0], parts[1])
	if err != nil {
		return t, "", fmt.Errorf("find table %s: %w", written, err)
	}
	if len(rows) == 0 {
		near, err := expiry.SuggestTable(ctx, tx, parts[0], parts[1])
		return t, fmt.Sprintf("there is no table %s in this database%s", strings.TrimSpace(written), near), err
	}
	return rows[0], rows[0].unfit(), nil
}

// withoutSchema finds a schema that has such a table.
func withoutSchema(ctx context.Context, q Querier, name string) (problem string, err error) {
	all, err := expiry.TablesNamed(ctx, q, name)
	if err != nil {
		return "", err
	}
	example := "public." + schemas.Identifier(name)
	if len(all) > 0 {
		example = all[0].SQL
	}
	return fmt.Sprintf("%s has no schema: write for instance %s", yamldoc.Quote(name), example), nil
}

// unfit says why the table cannot have a policy, or "".
func (t *Table) unfit() string {
	switch {
	case t.System:
		return fmt.Sprintf("%s belongs to the system", t.Name)
	case t.Kind == "f":
		return fmt.Sprintf("%s is a foreign table: make the policy where its rows are", t.Name)
	case t.Kind != "r" && t.Kind != "p":
		return fmt.Sprintf("%s is not a table: name the table that its rows come from", t.Name)
	case t.Persistence == "t":
		return fmt.Sprintf("%s is a temporary table", t.Name)
	case t.Persistence == "u":
		return fmt.Sprintf("%s is unlogged, so that its deletes leave no trace in the write-ahead log: alter table %s set logged", t.Name, t.Name)
	case t.Partition != "":
		return fmt.Sprintf("%s is a partition: name its root, %s", t.Name, t.Partition)
	case t.Inherits:
		return fmt.Sprintf("%s inherits or is inherited from, which is not supported: use declarative partitioning", t.Name)
	}
	return ""
}

// FindLeaves returns the relations that hold the table's rows.
func FindLeaves(ctx context.Context, q Querier, t *Table) (leaves []Relation, problems []string, err error) {
	if t.Kind == "r" {
		return []Relation{{OID: t.OID, Name: t.Name}}, nil, nil
	}
	all, err := Collect[Leaf](ctx, q, LeavesSQL, t.OID)
	if err != nil {
		return nil, nil, fmt.Errorf("list the partitions of %s: %w", t.Name, err)
	}
	for _, l := range all {
		if !l.Plain {
			problems = append(problems, fmt.Sprintf("partition %s is a foreign table, whose deletes leave no trace in this database: detach it", l.Name))
			continue
		}
		leaves = append(leaves, Relation{OID: l.OID, Name: l.Name})
	}
	return leaves, problems, nil
}
