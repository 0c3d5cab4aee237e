package schemas

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Version is the newest catalog version, the number of the last file in migrations/.
const Version = 1

// Roles are the names of an installation's roles. They belong to the cluster, not to the database: a prefix of its own
// keeps two databases apart.
type Roles struct{ Owner, Deleter, Executor, Auditor string }

// DefaultRolePrefix is what role names begin with when lapse.yaml says nothing.
const DefaultRolePrefix = "lapse_"

// RolesFor returns the role names that begin with prefix.
func RolesFor(prefix string) Roles {
	return Roles{Owner: prefix + "owner", Deleter: prefix + "deleter", Executor: prefix + "executor", Auditor: prefix + "auditor"}
}

// Migration is one step of the catalog, ready to run in one transaction.
type Migration struct {
	Version int
	SQL     string
}

// Migrations returns the steps above version, in order, for roles.
func Migrations(version int, roles Roles) ([]Migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	quoted := Roles{
		Owner: quote(roles.Owner), Deleter: quote(roles.Deleter), Executor: quote(roles.Executor), Auditor: quote(roles.Auditor),
	}
	var steps []Migration
	for i, name := range names {
		if i+1 <= version {
			continue
		}
		text, err := template.New(name).Option("missingkey=error").ParseFS(migrations, name)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		var sql strings.Builder
		if err := text.ExecuteTemplate(&sql, strings.TrimPrefix(name, "migrations/"), quoted); err != nil {
			return nil, fmt.Errorf("fill in %s: %w", name, err)
		}
		steps = append(steps, Migration{Version: i + 1, SQL: sql.String()})
	}
	return steps, nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
