package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// rolesSQL makes the three roles and lets the catalog's owner make its schema. Repeated it changes nothing.
func rolesSQL(roles schemas.Roles, database string) string {
	var sql strings.Builder
	for _, role := range []struct{ name, duty string }{
		{roles.Owner, "owns the catalog, the publications and nothing of yours"},
		{roles.Executor, "may call the deletion functions and nothing else on your tables"},
		{roles.Auditor, "reads the write-ahead log; deletes nothing"},
	} {
		sql.WriteString("-- " + role.duty + "\n" + createLogin(role.name))
	}
	fmt.Fprintf(&sql, "grant create on database %s to %s;\n", schemas.Identifier(database), schemas.Identifier(roles.Owner))
	return sql.String()
}

// madeByLapse is the comment on a role that init made, or the script that --grants prints: nothing else tells it from one that somebody had
// before, who would get all that Lapse may do, and whose role the way back would drop.
const madeByLapse = "made by lapse init"

// createLogin makes a role unless it is there.
func createLogin(name string) string {
	return Block(fmt.Sprintf("begin create role %[1]s login; comment on role %[1]s is %[2]s; exception when duplicate_object or unique_violation then null; end",
		schemas.Identifier(name), schemas.Literal(madeByLapse)))
}

// OfLapse are those of names that init made, or the script of --grants.
func OfLapse(ctx context.Context, q database.Querier, names ...string) ([]string, error) {
	rows, err := q.Query(ctx, `
		select r.rolname::text from unnest($1::text[]) with ordinality w(name, n) join pg_roles r on r.rolname = w.name
		 where shobj_description(r.oid, 'pg_authid') = $2 order by w.n`, names, madeByLapse)
	if err != nil {
		return nil, fmt.Errorf("look for roles that init made: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// giveReplication lets a login read the write-ahead log: the attribute does not come with membership. Who has it by other
// means keeps it.
func giveReplication(login string) string {
	return Block(fmt.Sprintf(`begin
  if not (select rolreplication or rolsuper from pg_roles where rolname = %s) then
    alter role %s replication;
  end if;
end`, schemas.Literal(login), schemas.Identifier(login)))
}

// Block is a DO statement.
func Block(body string) string {
	tag := "$lapse$"
	for n := 1; strings.Contains(body, tag); n++ {
		tag = fmt.Sprintf("$lapse%d$", n)
	}
	return "do " + tag + "\n" + body + "\n" + tag + ";\n"
}

// MissingRoles returns the names of the roles, and of the logins that play them, that are not there.
func MissingRoles(ctx context.Context, q database.Querier, roles schemas.Roles, logins ...Logins) ([]string, error) {
	names := []string{roles.Owner, roles.Executor, roles.Auditor}
	for _, l := range logins {
		names = append(names, l.Names()...)
	}
	rows, _ := q.Query(ctx, `
		select w.name
		  from unnest($1::text[]) with ordinality w(name, n)
		 where not exists (select from pg_roles r where r.rolname = w.name)
		 group by w.name
		 order by min(w.n)`, names) // CollectRows has its error
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for roles: %w", err)
	}
	return missing, nil
}

// UsedElsewhere names another database in which the catalog's owner owns something, while this one has no catalog: "" for none.
func UsedElsewhere(ctx context.Context, q database.Querier, roles schemas.Roles) (string, error) {
	var name string
	err := q.QueryRow(ctx, `
		select coalesce(min(d.datname), '')
		  from pg_shdepend s
		  join pg_roles r on r.oid = s.refobjid and s.refclassid = 'pg_authid'::regclass
		  join pg_database d on d.oid = s.dbid and d.datname <> current_database()
		 where r.rolname = $1 and s.deptype = 'o' and to_regnamespace('lapse') is null`, roles.Owner).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("look whether another database has the roles: %w", err)
	}
	return name, nil
}

// MakeRoles makes the roles, and the logins that are to play them, that are missing, in the database that conn is connected
// to. It needs a superuser. MissingGrants says what the logins lack then.
func MakeRoles(ctx context.Context, conn *pgx.Conn, roles schemas.Roles, logins ...Logins) error {
	var database string
	if err := conn.QueryRow(ctx, `select current_database()`).Scan(&database); err != nil {
		return fmt.Errorf("make roles: %w", err)
	}
	script := rolesSQL(roles, database) + giveReplication(roles.Auditor)
	for _, l := range logins {
		for _, name := range l.Names() {
			script += createLogin(name)
		}
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockRoles(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll()
		return err
	})
	if err != nil {
		return fmt.Errorf("make roles: %w", err)
	}
	return nil
}

// lockRoles keeps two apart that make the same roles, of two databases of one cluster for instance. The lock is the
// cluster's, as roles are.
func lockRoles(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `lock table pg_catalog.pg_authid in share row exclusive mode`)
	return err
}

// Superusers says which of names are superusers.
func Superusers(ctx context.Context, q database.Querier, names ...string) (map[string]bool, error) {
	rows, _ := q.Query(ctx, `select rolname::text from pg_roles where rolsuper and rolname = any ($1)`, names) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for superusers: %w", err)
	}
	super := map[string]bool{}
	for _, name := range all {
		super[name] = true
	}
	return super, nil
}

// Become makes the rest of a transaction the work of role; "" is the login's own.
func Become(ctx context.Context, tx pgx.Tx, role string) error {
	name := "none"
	if role != "" {
		name = schemas.Identifier(role)
	}
	if _, err := tx.Exec(ctx, "set local role "+name); err != nil {
		return fmt.Errorf("become %s: %w", name, err)
	}
	return nil
}
