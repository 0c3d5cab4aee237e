package schemas

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
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
	Version      = 6
	firstVersion = 3
)

// Migration is one step of the catalog, ready to run in one transaction.
type Migration struct {
	Version int
	SQL     string
	// Checksum is the SHA-256 of the step's files as the repository has them, in hexadecimal digits. It does not depend on roles.
	Checksum string
}

// Migrations returns the steps above version, in order, for roles. A step is all files of its number, by name. A number that
// is missing between the oldest and the newest is an error.
func Migrations(version int, roles Roles) ([]Migration, error) {
	if version > 0 && version < firstVersion {
		return nil, fmt.Errorf("the catalog has version %d, which was never released and is not upgraded: drop schema lapse and the replication slot, and run lapse init again", version)
	}
	all, err := readMigrations(migrations, roles)
	if err != nil {
		return nil, err
	}
	for i, step := range all {
		if step.Version > version {
			return all[i:], nil
		}
	}
	return nil, nil
}

// Checksums returns the checksum of every step, by its version.
func Checksums() (map[int]string, error) {
	steps, err := readMigrations(migrations, Roles{})
	if err != nil {
		return nil, err
	}
	all := map[int]string{}
	for _, step := range steps {
		all[step.Version] = step.Checksum
	}
	return all, nil
}

// readMigrations reads the steps from firstVersion to Version out of the files of folder migrations.
func readMigrations(files fs.FS, roles Roles) ([]Migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var steps []Migration
	digest := sha256.New()
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read the number of %s: %w", name, err)
		}
		if len(steps) == 0 || steps[len(steps)-1].Version != n {
			if want := firstVersion + len(steps); n != want {
				return nil, fmt.Errorf("list migrations: %s follows version %d: the files of version %d are missing", name, want-1, want)
			}
			steps = append(steps, Migration{Version: n})
			digest.Reset()
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		sql, err := fillIn(name, string(text), roles)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(digest, "%s\n%d\n%s", name, len(text), text)
		step := &steps[len(steps)-1]
		step.SQL += sql
		step.Checksum = hex.EncodeToString(digest.Sum(nil))
	}
	if newest := firstVersion + len(steps) - 1; newest != Version {
		return nil, fmt.Errorf("list migrations: they end with version %d, not %d", newest, Version)
	}
	return steps, nil
}

// fillIn writes a migration for roles.
func fillIn(name, text string, roles Roles) (string, error) {
	parsed, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", name, err)
	}
	var sql strings.Builder
	err = parsed.Execute(&sql, map[string]string{
		"Owner": Identifier(roles.Owner), "Executor": Identifier(roles.Executor), "Auditor": Identifier(roles.Auditor),
		"ExecutorText": Literal(roles.Executor),
	})
	if err != nil {
		return "", fmt.Errorf("fill in %s: %w", name, err)
	}
	return sql.String(), nil
}
