package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/access"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// loginsOf returns the logins for owner, executor and auditor in a database's settings.
func loginsOf(d config.Database) (l access.Logins, err error) {
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

// others returns the logins that the other commands will use. A superuser runs init with --database or LAPSE_DATABASE_URL; everything else
// keeps using the logins of lapse.yaml.
func (a *app) others(s *config.Settings) (access.Logins, error) {
	if _, named := a.env("LAPSE_DATABASE_URL_OWNER"); s.File == "" && !named {
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
		return access.Logins{}, invalid(err)
	}
	if file.Database.Owner == "" {
		return loginsOf(s.Database)
	}
	return loginsOf(file.Database)
}

// printGrants prints the script for roles and logins, and for the tables of a policy file. It connects to nothing.
func (a *app) printGrants(s *config.Settings, tables []access.PolicyTable, managed string) error {
	if a.asJSON {
		return wrongUsage("--grants prints SQL: leave --json out")
	}
	if managed != "" && !slices.Contains(access.ManagedServers(), managed) {
		return wrongUsage("--managed %s: want %s", managed, strings.Join(access.ManagedServers(), ", "))
	}
	if a.unsaid(s.Database.Owner) {
		return invalid(errors.New(whichDatabase))
	}
	database, err := s.Database.Name()
	if err != nil {
		return invalid(err)
	}
	logins, err := loginsOf(s.Database)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.raw(), stopOnError+access.GrantsSQL(s.Roles, database, logins, tables, access.Managed(managed)))
	return err
}

// stopOnError begins a script for psql. Without it psql continues after an error, rolls back and exits with 0. psql takes a comment behind the
// value for a part of it.
const stopOnError = `-- The next line is for psql; leave it out elsewhere.
\set ON_ERROR_STOP on
`

// printPolicyGrants prints all that a DBA must run for a policy file: `lapse apply --grants`.
func (a *app) printPolicyGrants(s *config.Settings, names []string, managed string) error {
	policies, err := a.readPolicyFiles(names)
	if err != nil {
		return err
	}
	if len(policies.Problems) > 0 {
		return policies.Problems
	}
	tables := make([]access.PolicyTable, len(policies.Policies))
	for i := range policies.Policies {
		p := &policies.Policies[i]
		tables[i] = access.PolicyTable{Name: p.Table, Column: ownColumn(p.Expire), Index: p.Index == "create"}
	}
	return a.printGrants(s, tables, managed)
}

// managedFlag adds --managed to a command with --grants, which it needs.
func managedFlag(cmd *cobra.Command, into *string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if grants, err := cmd.Flags().GetBool("grants"); err != nil || grants || !cmd.Flags().Changed("managed") {
			return err
		}
		return errors.New("--managed needs --grants, which prints SQL and does nothing else")
	}
	cmd.Flags().StringVar(into, "managed", "", "--grants for a managed `server`: "+strings.Join(access.ManagedServers(), ", "))
}

// ownColumn returns a column of the policy's own table; "" if the name is that of a sidecar's.
func ownColumn(e expiry.Entry) string {
	if e["sidecar"] != "" {
		return ""
	}
	return cmp.Or(e["column"], e["bucket.column"])
}

func givePassword(login string) string {
	return fmt.Sprintf("if the server asks for passwords, give %s one: alter role %[1]s password '…'", schemas.Identifier(login))
}

// loginURL is the connection string with which login reaches c's database, for a shell. It has no password.
func loginURL(c config.ConnString, login string) (string, error) {
	parsed, err := pgx.ParseConfig(string(c))
	if err != nil {
		return "", invalid(fmt.Errorf("read the database's connection string: %w", err))
	}
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
	return text, nil
}
