package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/config"
	"lapse/schemas"
)

// The commands of superuserCommands may need a superuser's login. Every other command refuses one, on each of its connections, including
// the replication stream's, before it sends anything else: should a session evaluate a table owner's code after all (a cast, an
// operator, a function changed a moment ago), that code could do everything the login can do. LAPSE_SUPERUSER=allow accepts
// such a login, with one warning in the log.

// superuserCommands take a superuser's login.
const superuserCommands = "init, apply, plan -f, import, doctor, keys list and uninstall"

// superuserError says that a command got a superuser's login, and how to make another one.
type superuserError struct {
	superuser string // the login, or a superuser that it can become
	login     string
	roles     schemas.Roles
}

func (e *superuserError) Error() string {
	what := fmt.Sprintf("%q is a superuser", e.login)
	if e.login != e.superuser {
		what = fmt.Sprintf("%q is a member of the superuser %q", e.login, e.superuser)
	}
	return fmt.Sprintf(`%[1]s: only `+superuserCommands+` take such a login; use the login of database: in lapse.yaml, or, where there is none yet, the one that lapse init makes, or make one:

create role %[2]s login replication;
grant %[3]s, %[4]s, %[5]s to %[2]s;
-- and a password, if pg_hba.conf asks for one: alter role %[2]s password '...'

LAPSE_SUPERUSER=allow in the environment lets a superuser pass, for throw-away databases`,
		what, schemas.Identifier(e.roles.Login), schemas.Identifier(e.roles.Owner), schemas.Identifier(e.roles.Executor), schemas.Identifier(e.roles.Auditor))
}

// reachableSuperuser returns the superuser that the session's login is or can become, and the login. Its query qualifies all names,
// because it runs before the session is trusted.
const reachableSuperuser = `
	select r.rolname::pg_catalog.text
	  from pg_catalog.pg_roles r
	 where r.rolsuper and pg_catalog.pg_has_role(session_user, r.oid, 'member')
	 order by case when r.rolname operator(pg_catalog.=) session_user then 0 else 1 end, r.rolname
	 limit 1`

// errNotPinned says that a session lacks the settings that it was started with.
var errNotPinned = errors.New("the session was started with settings of its own and does not have them: " + connectDirectly)

// connectDirectly is the advice about poolers between Lapse and the server. In transaction mode a pooler also mixes its clients' sessions.
const connectDirectly = "connect to PostgreSQL directly, not through a pooler"

// checkPinned refuses a session whose settings a pooler dropped, although its login or database may set some of them. Its query qualifies
// all names, because the session's search_path may be the login's.
func checkPinned(ctx context.Context, conn *pgconn.PgConn) error {
	settings := schemas.SessionSettings()
	var wanted []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		wanted = append(wanted, "("+schemas.Literal(name)+", "+schemas.Literal(settings[name])+")")
	}
	others, err := oneValue(ctx, conn, "select pg_catalog.count(*) from (values "+strings.Join(wanted, ", ")+
		") w(name, value) where pg_catalog.current_setting(w.name) operator(pg_catalog.<>) w.value")
	if err != nil {
		return fmt.Errorf("check the session's settings: %w", err)
	}
	if others != "0" {
		return errNotPinned
	}
	return nil
}

// oneValue returns the value of a query's only row, or "" if there is none. It also works on connections that speak only the simple
// protocol.
func oneValue(ctx context.Context, conn *pgconn.PgConn, query string) (string, error) {
	results, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return "", nil
	}
	return string(results[0].Rows[0][0]), nil
}

// admit returns the check that each connection must pass before use.
func (a *app) admit(s *config.Settings, login string) pgconn.AfterConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := checkPinned(ctx, conn); err != nil {
			return err
		}
		superuser, err := oneValue(ctx, conn, reachableSuperuser)
		switch {
		case err != nil:
			return fmt.Errorf("check the login: %w", err)
		case superuser == "":
			return nil
		case !s.AllowSuperuser:
			return &superuserError{superuser: superuser, login: login, roles: s.Roles}
		}
		a.warned.Do(func() {
			a.log.Warn("a superuser's login, which LAPSE_SUPERUSER=allow lets pass: this is for throw-away databases only", "login", login)
		})
		return nil
	}
}
