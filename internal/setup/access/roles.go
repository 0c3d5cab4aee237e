package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// rolesSQL creates the three roles and allows the catalog's owner to create its schema. Running it again changes nothing.
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

// madeByLapse is the comment on a role that init or the script of --grants created. It alone tells such a role from one that existed
// before, which must not get Lapse's rights and which uninstall must not drop.
const madeByLapse = "made by lapse init"

// createLogin creates a role unless it exists.
func createLogin(name string) string {
	return Block(fmt.Sprintf("begin create role %[1]s login; comment on role %[1]s is %[2]s; exception when duplicate_object or unique_violation then null; end",
		schemas.Identifier(name), schemas.Literal(madeByLapse)))
}

// OfLapse returns those of names that init or the script of --grants created.
func OfLapse(ctx context.Context, q database.Querier, names ...string) ([]string, error) {
	rows, err := q.Query(ctx, `
		select r.rolname::text from unnest($1::text[]) with ordinality w(name, n) join pg_roles r on r.rolname = w.name
		 where shobj_description(r.oid, 'pg_authid') = $2 order by w.n`, names, madeByLapse)
	if err != nil {
		return nil, fmt.Errorf("look for roles that init made: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// giveReplication lets a login read the write-ahead log, because membership does not pass on the attribute. It changes nothing for a
// superuser or a login that has the attribute. Where the role that runs it may not give the attribute, it says what somebody else must run
// first: the script is one transaction, so the login that it makes is not there then.
func giveReplication(login string) string {
	name := schemas.Identifier(login)
	hint := fmt.Sprintf("have a superuser run: create role %[1]s login replication (or, where it is there: alter role %[1]s replication), and run this again", name)
	return Block(fmt.Sprintf(`begin
  if not (select rolreplication or rolsuper from pg_roles where rolname = %s) then
    alter role %s replication;
  end if;
exception when insufficient_privilege then
  raise insufficient_privilege using message = sqlerrm,
    hint = %s;
end`, schemas.Literal(login), name, schemas.Literal(hint)))
}

// Block wraps a body in a DO statement.
func Block(body string) string {
	tag := "$lapse$"
	for n := 1; strings.Contains(body, tag); n++ {
		tag = fmt.Sprintf("$lapse%d$", n)
	}
	return "do " + tag + "\n" + body + "\n" + tag + ";\n"
}

// MissingRoles returns which of the roles, and of their logins, do not exist.
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
		 order by min(w.n)`, names) // CollectRows returns the error
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for roles: %w", err)
	}
	return missing, nil
}

// UsedElsewhere names another database in which the catalog's owner owns something, if this one has no catalog; otherwise "".
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

// MakeRoles creates the missing roles and logins in the database of conn. It needs a superuser. Call MissingGrants afterward for what the
// logins still lack.
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

// lockRoles serializes calls that create the same roles, for instance for two databases of one cluster. Like roles, the lock belongs to
// the cluster.
func lockRoles(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `lock table pg_catalog.pg_authid in share row exclusive mode`)
	return err
}

// Superusers returns which of names are superusers.
func Superusers(ctx context.Context, q database.Querier, names ...string) (map[string]bool, error) {
	rows, _ := q.Query(ctx, `select rolname::text from pg_roles where rolsuper and rolname = any ($1)`, names) // CollectRows returns the error
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

// Become sets the role for the rest of a transaction; "" is the login itself.
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
