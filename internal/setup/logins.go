package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Logins are the logins that play the roles. A login may be the role itself, and one login may play all three.
type Logins struct{ Owner, Executor, Auditor string }

// grants are the statements that let the logins play their roles.
func (l Logins) grants(roles schemas.Roles) []string {
	var all []string
	for _, play := range []struct{ login, role string }{
		{l.Owner, roles.Owner}, {l.Executor, roles.Executor}, {l.Auditor, roles.Auditor},
	} {
		if play.login != play.role {
			all = append(all, fmt.Sprintf("grant %s to %s", quote(play.role), quote(play.login)))
		}
	}
	if l.Auditor != roles.Auditor {
		// A role's attributes do not come with membership.
		all = append(all, fmt.Sprintf("alter role %s replication", quote(l.Auditor)))
	}
	return all
}

// LoginsSQL returns the script that lets the logins play their roles: what GrantsSQL leaves out.
func LoginsSQL(roles schemas.Roles, logins Logins) string {
	var sql strings.Builder
	for _, grant := range logins.grants(roles) {
		sql.WriteString(grant + ";\n")
	}
	return sql.String()
}

// MissingGrants returns what a superuser must still run, once the roles are there, so that owner, executor and auditor
// can work in the database that conn is connected to.
func MissingGrants(ctx context.Context, conn *pgx.Conn, roles schemas.Roles, logins Logins) ([]string, error) {
	const query = `
		select missing.statement
		  from (values
		    (format('grant create on database %I to %I', current_database(), $1::text),
		     not has_database_privilege($1, current_database(), 'create')),
		    (format('grant %I to %I', $1::text, $3::text), not pg_has_role($3, $1, 'member')),
		    (format('grant %I to %I', $2::text, $4::text), not pg_has_role($4, $2, 'member')),
		    (format('grant %I to %I', $5::text, $6::text), not pg_has_role($6, $5, 'member')),
		    (format('alter role %I replication', $6::text),
		     not (select r.rolreplication or r.rolsuper from pg_roles r where r.rolname = $6))
		  ) as missing(statement, wanted)
		 where missing.wanted`
	rows, err := conn.Query(ctx, query,
		roles.Owner, roles.Executor, logins.Owner, logins.Executor, roles.Auditor, logins.Auditor)
	if err != nil {
		return nil, fmt.Errorf("look for grants: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for grants: %w", err)
	}
	return missing, nil
}

// Grant runs statements of MissingGrants, all or none.
func Grant(ctx context.Context, conn *pgx.Conn, statements []string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make grants: %w", err)
	}
	return nil
}
