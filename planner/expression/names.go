package expression

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// candidate is something that a name with a schema may mean.
type candidate struct {
	Name      string
	Superuser bool
	Types     []uint32 // the type, or those of the arguments, into which PostgreSQL may read a literal
}

// candidatesSQL lists what is called $2 in schema $1.
const candidatesSQL = `
	select p.oid::regprocedure::text, o.rolsuper, p.proargtypes::oid[]
	  from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_roles o on o.oid = p.proowner
	 where n.nspname = $1 and p.proname = $2
	union all
	select x.oid::regoperator::text, o.rolsuper, array[x.oprleft, x.oprright]
	  from pg_operator x join pg_namespace n on n.oid = x.oprnamespace join pg_roles o on o.oid = x.oprowner
	 where n.nspname = $1 and x.oprname = $2
	union all
	select y.oid::regtype::text, o.rolsuper or y.typtype = 'e', array[y.oid]
	  from pg_type y join pg_namespace n on n.oid = y.typnamespace join pg_roles o on o.oid = y.typowner
	 where n.nspname = $1 and y.typname = $2
	union all
	select c.oid::regcollation::text, o.rolsuper, '{}'
	  from pg_collation c join pg_namespace n on n.oid = c.collnamespace join pg_roles o on o.oid = c.collowner
	 where n.nspname = $1 and c.collname = $2`

// checkNames checks all that the names with a schema may mean, since PostgreSQL reads a literal into the type of an argument while
// it parses.
func checkNames(ctx context.Context, tx pgx.Tx, tokens []token) (problem string, err error) {
	named, problem := qualifiedNames(tokens)
	for _, n := range named {
		if problem != "" || n.schema == "pg_catalog" {
			continue
		}
		if problem, err = checkName(ctx, tx, n); err != nil {
			return "", fmt.Errorf("look for what a name means: %w", err)
		}
	}
	return problem, nil
}

func checkName(ctx context.Context, tx pgx.Tx, n qualifiedName) (problem string, err error) {
	written := schemas.Identifier(n.schema) + "." + n.name
	rows, err := tx.Query(ctx, candidatesSQL, n.schema, n.name)
	if err != nil {
		return "", err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return fmt.Sprintf("there is no function, operator or type %s: columns are written without their table's name", written), nil
	}
	for _, c := range all {
		if !c.Superuser {
			return c.Name + " is neither PostgreSQL's nor a superuser's, and would run inside the deletion with rights that its owner may not have", nil
		}
		facts, err := loadTypes(ctx, tx, slices.DeleteFunc(slices.Clone(c.Types), func(oid uint32) bool { return oid == 0 }))
		if err != nil {
			return "", err
		}
		for _, f := range facts {
			if f.Trouble != "" && f.Trouble != "a pseudo-type" {
				return fmt.Sprintf("%s reads %s, %s", c.Name, f.Name, f.Trouble), nil
			}
		}
	}
	return "", nil
}
