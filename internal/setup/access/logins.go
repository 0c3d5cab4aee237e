package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// Logins are the logins that play the roles. A login may be the role itself, and one login may take all three.
type Logins struct{ Owner, Executor, Auditor string }

// OneLogin plays all three roles.
func OneLogin(name string) Logins { return Logins{Owner: name, Executor: name, Auditor: name} }

// Names are the logins, each once.
func (l Logins) Names() []string {
	var names []string
	for _, name := range []string{l.Owner, l.Executor, l.Auditor} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// loginsSQL makes missing logins and lets them play their roles. Repeated it changes nothing.
func loginsSQL(roles schemas.Roles, logins Logins) string {
	var sql strings.Builder
	ours := []string{roles.Owner, roles.Executor, roles.Auditor}
	for _, name := range logins.Names() {
		if !slices.Contains(ours, name) {
			sql.WriteString(createLogin(name))
		}
	}
	for _, play := range []struct{ login, role string }{
		{logins.Owner, roles.Owner}, {logins.Executor, roles.Executor}, {logins.Auditor, roles.Auditor},
	} {
		if play.login != play.role {
			fmt.Fprintf(&sql, "grant %s to %s;\n", schemas.Identifier(play.role), schemas.Identifier(play.login))
		}
	}
	return sql.String()
}

// MissingGrants returns what a superuser must still run, once roles and logins are there, so that owner, executor and
// auditor can work in the database that conn is connected to.
func MissingGrants(ctx context.Context, q database.Querier, roles schemas.Roles, logins Logins) ([]string, error) {
	// On Amazon RDS no role has the attribute; members of rds_replication may do what it allows.
	const query = `
		select missing.statement
		  from (values
		    (format('grant create on database %I to %I', current_database(), $1::text),
		     not has_database_privilege($1, current_database(), 'create')),
		    (format('grant %I to %I', $1::text, $3::text), not pg_has_role($3, $1, 'member')),
		    (format('grant %I to %I', $2::text, $4::text), not pg_has_role($4, $2, 'member')),
		    (format('grant %I to %I', $5::text, $6::text), not pg_has_role($6, $5, 'member')),
		    (format('alter role %I replication', $6::text),
		     not (select r.rolreplication or r.rolsuper from pg_roles r where r.rolname = $6)
		     and not exists (select from pg_roles s where s.rolname = 'rds_replication' and pg_has_role($6, s.oid, 'member')))
		  ) as missing(statement, wanted)
		 where missing.wanted`
	rows, _ := q.Query(ctx, query,
		roles.Owner, roles.Executor, logins.Owner, logins.Executor, roles.Auditor, logins.Auditor) // CollectRows has its error
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for grants: %w", err)
	}
	return missing, nil
}

// Grant grants the logins what they lack, all or nothing, and returns the statements. It needs a superuser.
func Grant(ctx context.Context, conn *pgx.Conn, roles schemas.Roles, logins Logins) (done []string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockRoles(ctx, tx); err != nil {
			return err
		}
		if done, err = MissingGrants(ctx, tx, roles, logins); err != nil {
			return err
		}
		for _, statement := range done {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make grants: %w", err)
	}
	return done, nil
}
