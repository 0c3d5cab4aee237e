package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/config"
	"lapse/internal/setup"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// loginsOf are the logins that a database's settings name for owner, executor and auditor.
func loginsOf(d config.Database) (l setup.Logins, err error) {
	for _, login := range []struct {
		of   config.ConnString
		into *string
	}{{d.Owner, &l.Owner}, {d.Executor, &l.Executor}, {d.Auditor, &l.Auditor}} {
		if *login.into, err = login.of.Login(); err != nil {
			return l, invalid(err)
		}
	}
	return l, nil
}

// others are the logins that the other commands will use. A superuser runs init with --database or LAPSE_DATABASE_URL; what
// lapse.yaml names beside it stays the login for everything else.
func (a *app) others(s *config.Settings) (setup.Logins, error) {
	if s.File == "" {
		return loginsOf(s.Database)
	}
	quiet := func(name string) (string, bool) {
		if name == "LAPSE_DATABASE_URL" {
			return "", false
		}
		return a.env(name)
	}
	file, err := config.Load(s.File, config.Overrides{}, quiet)
	if err != nil {
		return setup.Logins{}, invalid(err)
	}
	if file.Database.Owner == "" {
		return loginsOf(s.Database)
	}
	return loginsOf(file.Database)
}

// printGrants prints the script for roles and logins, and for the tables of a policy file. It connects to nothing.
func (a *app) printGrants(s *config.Settings, tables []setup.PolicyTable) error {
	database, err := s.Database.Name()
	if err != nil {
		return invalid(err)
	}
	logins, err := loginsOf(s.Database)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, setup.GrantsSQL(s.Roles, database, logins, tables))
	return err
}

// printPolicyGrants prints all that a DBA must run for a policy file: `lapse apply --grants`.
func (a *app) printPolicyGrants(s *config.Settings, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return invalid(fmt.Errorf("read the policy file: %w", err))
	}
	policies, err := policyfile.Parse(file, text)
	if err != nil {
		return err
	}
	tables := make([]setup.PolicyTable, len(policies.Policies))
	for i := range policies.Policies {
		p := &policies.Policies[i]
		tables[i] = setup.PolicyTable{Name: p.Table, Column: p.Expire["column"]}
	}
	return a.printGrants(s, tables)
}

// roles makes the roles and lets the logins play them, or says what a superuser must run.
func (i *initialiser) roles(ctx context.Context, conn *pgx.Conn) error {
	roles := i.settings.Roles
	logins, err := loginsOf(i.settings.Database)
	if err != nil {
		return err
	}
	others, err := i.others(i.settings)
	if err != nil {
		return err
	}
	warnings, err := setup.CheckRoles(ctx, conn, roles, logins, others)
	if err != nil {
		return err
	}
	i.Warnings = append(i.Warnings, warnings...)
	superuser, err := setup.Superusers(ctx, conn, append(others.Names(), logins.Owner)...)
	if err != nil {
		return err
	}
	if !superuser[logins.Owner] {
		return i.mustBeThere(ctx, conn, logins)
	}
	missing, err := setup.MissingRoles(ctx, conn, roles, others)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := setup.MakeRoles(ctx, conn, roles, others); err != nil {
			return err
		}
		i.did("roles", "%s", strings.Join(missing, ", "))
	}
	if err := i.equip(ctx, conn, others); err != nil {
		return err
	}
	for _, login := range others.Names() {
		if slices.Contains(missing, login) {
			i.Next = append(i.Next, givePassword(login))
		}
	}
	if superuser[others.Executor] || superuser[others.Auditor] {
		return i.login(ctx, conn)
	}
	return nil
}

// mustBeThere is for whoever may not make roles.
func (i *initialiser) mustBeThere(ctx context.Context, conn *pgx.Conn, logins setup.Logins) error {
	missing, err := setup.MissingRoles(ctx, conn, i.settings.Roles, logins)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return i.needsSuperuser(conn, "roles are missing: "+strings.Join(missing, ", "),
			setup.GrantsSQL(i.settings.Roles, conn.Config().Database, logins, nil))
	}
	grants, err := setup.MissingGrants(ctx, conn, i.settings.Roles, logins)
	if err != nil || len(grants) == 0 {
		return err
	}
	return i.needsSuperuser(conn, "grants are missing", strings.Join(grants, ";\n")+";\n")
}

func (i *initialiser) needsSuperuser(conn *pgx.Conn, what, sql string) error {
	return fmt.Errorf("%s, and %q is no superuser: have one run this (lapse init --grants prints all of it), then run lapse init again:\n\n%s",
		what, conn.Config().User, sql)
}

// equip gives logins what they lack.
func (i *initialiser) equip(ctx context.Context, conn *pgx.Conn, logins setup.Logins) error {
	missing, err := setup.MissingGrants(ctx, conn, i.settings.Roles, logins)
	if err != nil || len(missing) == 0 {
		return err
	}
	done, err := setup.Grant(ctx, conn, i.settings.Roles, logins)
	if err != nil {
		return err
	}
	i.did("grants", "%s", strings.Join(done, "; "))
	return nil
}

// login makes the login for all other commands, where the settings name none but a superuser's. A role of its name that was
// there before is somebody's: it is taken only where nobody else is a member of it, and that is said.
func (i *initialiser) login(ctx context.Context, conn *pgx.Conn) error {
	roles := i.settings.Roles
	logins := setup.OneLogin(roles.Login)
	missing, err := setup.MissingRoles(ctx, conn, roles, logins)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := setup.MakeRoles(ctx, conn, roles, logins); err != nil {
			return err
		}
		i.did("login", "%s", roles.Login)
	} else {
		grants, err := setup.MissingGrants(ctx, conn, roles, logins)
		if err != nil || len(grants) == 0 {
			return err
		}
		trouble, err := setup.LoginTrouble(ctx, conn, roles)
		if err != nil {
			return err
		}
		if trouble != "" {
			i.Warnings = append(i.Warnings, fmt.Sprintf("role %s was there before and %s, so that nothing was given to it: "+
				"name another login with database: in lapse.yaml and run lapse init again", schemas.Identifier(roles.Login), trouble))
			return nil
		}
		i.Warnings = append(i.Warnings, fmt.Sprintf("login %s was there before: whoever knows its password can delete what is due and read "+
			"the write-ahead log; if that is not meant, give it another password", schemas.Identifier(roles.Login)))
	}
	if err := i.equip(ctx, conn, logins); err != nil {
		return err
	}
	i.Next = append(i.Next,
		givePassword(roles.Login),
		"for all other commands: export LAPSE_DATABASE_URL="+loginURL(i.settings.Database.Owner, conn.Config(), roles.Login))
	return nil
}

func givePassword(login string) string {
	return fmt.Sprintf("if the server asks for passwords, give %s one: alter role %[1]s password '…'", schemas.Identifier(login))
}

// loginURL is how login reaches the database that c names, for a shell. It has no password.
func loginURL(c config.ConnString, parsed *pgx.ConnConfig, login string) string {
	u, err := url.Parse(string(c))
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		u = &url.URL{Scheme: "postgres", Host: fmt.Sprintf("%s:%d", parsed.Host, parsed.Port)}
		if strings.HasPrefix(parsed.Host, "/") {
			u.Host = ""
			u.RawQuery = url.Values{"host": {parsed.Host}, "port": {fmt.Sprint(parsed.Port)}}.Encode()
		}
	}
	query := u.Query()
	query.Del("user")
	query.Del("password")
	u.User, u.Path, u.RawQuery = url.User(login), "/"+parsed.Database, query.Encode()
	text := u.String()
	if u.RawQuery != "" {
		text = "'" + text + "'"
	}
	return text
}
