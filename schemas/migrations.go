package schemas

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/template"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Version is the newest catalog version, the number of the last files in migrations/. firstVersion is the oldest that is
// upgraded.
const (
	Version      = 5
	firstVersion = 3
)

// Migration is one step of the catalog, ready to run in one transaction.
type Migration struct {
	Version int
	SQL     string
}

// Migrations returns the steps above version, in order, for roles. A step is all files of its number, by name.
func Migrations(version int, roles Roles) ([]Migration, error) {
	if version > 0 && version < firstVersion {
		return nil, fmt.Errorf("the catalog has version %d, which was never released and is not upgraded: drop schema lapse and the replication slot, and run lapse init again", version)
	}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var steps []Migration
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read the number of %s: %w", name, err)
		}
		if n <= version {
			continue
		}
		sql, err := fillIn(name, roles)
		if err != nil {
			return nil, err
		}
		if len(steps) == 0 || steps[len(steps)-1].Version != n {
			steps = append(steps, Migration{Version: n})
		}
		steps[len(steps)-1].SQL += sql
	}
	return steps, nil
}

// fillIn writes a migration for roles.
func fillIn(name string, roles Roles) (string, error) {
	text, err := template.New(name).Option("missingkey=error").ParseFS(migrations, name)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", name, err)
	}
	var sql strings.Builder
	err = text.ExecuteTemplate(&sql, strings.TrimPrefix(name, "migrations/"), map[string]string{
		"Owner": Identifier(roles.Owner), "Executor": Identifier(roles.Executor), "Auditor": Identifier(roles.Auditor),
		"ExecutorText": Literal(roles.Executor),
	})
	if err != nil {
		return "", fmt.Errorf("fill in %s: %w", name, err)
	}
	return sql.String(), nil
}
