package schemas

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Version is the newest catalog version, the number of the last files in migrations/. No release gets a version of unreleased.
const Version = 1

// unreleased are the versions that catalogs had before the first release, from the lowest to the highest.
var unreleased = [2]int{3, 6}

// OtherVersion says why this program cannot use a catalog of version found, and what to do; both are "" if it can. A version below 1
// means that there is no catalog.
func OtherVersion(found int) (why, remedy string) {
	switch {
	case found == Version:
		return "", ""
	case unreleased[0] <= found && found <= unreleased[1]:
		return fmt.Sprintf("the catalog has version %d, which was never released and is not upgraded", found),
			"remove it by lapse uninstall of the lapse that made it, or drop schema lapse, its publications and its replication slot; then run lapse init"
	case found > Version:
		return fmt.Sprintf("the catalog has version %d, this program knows %d", found, Version), "use a newer lapse"
	}
	return fmt.Sprintf("the catalog has version %d, this program needs %d", found, Version), "run lapse init"
}

// Migration is one step of the catalog, ready to run in one transaction.
type Migration struct {
	Version int
	SQL     string
	// Checksum is the SHA-256 of the step's files as in the repository, in hexadecimal digits. It does not depend on roles.
	Checksum string
}

// Migrations returns all steps for roles, from version 1 to Version. A step consists of all files of its number, sorted by name. A missing
// number is an error.
func Migrations(roles Roles) ([]Migration, error) {
	steps, err := readMigrations(migrations, roles)
	if err != nil {
		return nil, err
	}
	if newest := len(steps); newest != Version {
		return nil, fmt.Errorf("list migrations: they end with version %d, not %d", newest, Version)
	}
	return steps, nil
}

// readMigrations reads the steps from the files of folder migrations.
func readMigrations(files fs.FS, roles Roles) ([]Migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var steps []Migration
	var texts [][]string // of each step
	digest := sha256.New()
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read the number of %s: %w", name, err)
		}
		if len(steps) == 0 || steps[len(steps)-1].Version != n {
			if want := 1 + len(steps); n != want {
				return nil, fmt.Errorf("list migrations: %s follows version %d: the files of version %d are missing", name, want-1, want)
			}
			steps, texts = append(steps, Migration{Version: n}), append(texts, nil)
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
		fmt.Fprintf(digest, "%s\n%d\n", name, len(text))
		_, _ = digest.Write(text)
		texts[len(steps)-1] = append(texts[len(steps)-1], sql)
		steps[len(steps)-1].Checksum = hex.EncodeToString(digest.Sum(nil))
	}
	for i := range steps {
		steps[i].SQL = strings.Join(texts[i], "")
	}
	return steps, nil
}

// fillIn fills roles into a migration, in which nothing else may be filled in.
func fillIn(name, text string, roles Roles) (string, error) {
	const owner, executorText = "{{.Owner}}", "{{.ExecutorText}}"
	parts := strings.Split(text, owner)
	if strings.Count(text, "{{") != len(parts)-1+strings.Count(text, executorText) {
		return "", fmt.Errorf("fill in %s: something other than %s and %s is to be filled in", name, owner, executorText)
	}
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], executorText, Literal(roles.Executor))
	}
	return strings.Join(parts, Identifier(roles.Owner)), nil
}
