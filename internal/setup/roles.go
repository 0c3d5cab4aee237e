package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// GrantsSQL returns the script that a superuser (or, for all but the REPLICATION attribute, a role with CREATEROLE)
// runs once in a database. `lapse init` runs it where it may; `lapse init --grants` prints it.
func GrantsSQL(roles schemas.Roles, database string) string {
	var sql strings.Builder
	sql.WriteString("-- The roles of Lapse in database " + quote(database) + ". Safe to repeat.\n")
	for _, role := range []struct{ name, attributes, duty string }{
		{roles.Owner, "login", "owns the catalog, the publications and nothing of yours"},
		{roles.Executor, "login", "may call the deletion functions and nothing else on your tables"},
		{roles.Auditor, "login replication", "reads the write-ahead log; deletes nothing"},
	} {
		fmt.Fprintf(&sql, "-- %s\ndo $$ begin create role %s %s; exception when duplicate_object or unique_violation then null; end $$;\n",
			role.duty, quote(role.name), role.attributes)
	}
	fmt.Fprintf(&sql, "grant create on database %s to %s;\n", quote(database), quote(roles.Owner))
	return sql.String()
}

// MissingRoles returns the names of roles that are not there.
func MissingRoles(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) ([]string, error) {
	rows, err := conn.Query(ctx, `select n from unnest($1::text[]) with ordinality l(n, at) where not exists (select from pg_roles r where r.rolname = n) order by at`,
		[]string{roles.Owner, roles.Executor, roles.Auditor})
	if err != nil {
		return nil, fmt.Errorf("look for roles: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for roles: %w", err)
	}
	return missing, nil
}

// MakeRoles makes the missing roles and their grants in the database that conn is connected to.
func MakeRoles(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) error {
	var database string
	if err := conn.QueryRow(ctx, `select current_database()`).Scan(&database); err != nil {
		return fmt.Errorf("make roles: %w", err)
	}
	// Two databases of one cluster make the same roles; the lock is the cluster's, as roles are.
	if _, err := conn.Exec(ctx, `begin; lock table pg_catalog.pg_authid in share row exclusive mode; `+GrantsSQL(roles, database)+` commit`); err != nil {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "rollback")
		return fmt.Errorf("make roles: %w", err)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
