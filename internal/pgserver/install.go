package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"lapse/internal/servers"
)

// ErrNotInstalled is wrapped by what Find returns for a version that is not on this machine.
var ErrNotInstalled = errors.New("not installed")

// Install is one PostgreSQL on this machine.
type Install struct {
	Major   int
	Version string // such as 18.6
	BinDir  string
}

// Installed lists the PostgreSQL servers of this machine, one for each major version, oldest first: those that make
// servers fetched, then those of the system's packages (/usr/lib/postgresql).
func Installed() ([]Install, error) {
	dir, err := servers.Dir()
	if err != nil {
		return nil, err
	}
	var candidates []string
	for _, pin := range servers.PostgresPins() {
		candidates = append(candidates, filepath.Join(servers.PostgresDir(dir, pin.Major), "bin"))
	}
	system, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return nil, err
	}
	candidates = append(candidates, system...)

	var found []Install
	for _, binDir := range candidates {
		install, err := inspect(binDir)
		if err != nil || slices.ContainsFunc(found, func(other Install) bool { return other.Major == install.Major }) {
			continue
		}
		found = append(found, install)
	}
	slices.SortFunc(found, func(a, b Install) int { return a.Major - b.Major })
	return found, nil
}

// Find finds the server of one major version. The error wraps ErrNotInstalled if there is none.
func Find(major int) (Install, error) {
	found, err := Installed()
	if err != nil {
		return Install{}, err
	}
	for _, install := range found {
		if install.Major == major {
			return install, nil
		}
	}
	return Install{}, fmt.Errorf("PostgreSQL %d is %w: run make servers", major, ErrNotInstalled)
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) ((\d+)[^\s]*)`)

// inspect asks the server in binDir for its version. A folder from which initdb or postgres is missing is no server.
func inspect(binDir string) (Install, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := exec.LookPath(filepath.Join(binDir, "initdb")); err != nil {
		return Install{}, err
	}
	output, err := exec.CommandContext(ctx, filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return Install{}, err
	}
	match := versionLine.FindSubmatch(output)
	if match == nil {
		return Install{}, fmt.Errorf("%s/postgres --version says %q", binDir, output)
	}
	major, err := strconv.Atoi(string(match[2]))
	if err != nil {
		return Install{}, err
	}
	return Install{Major: major, Version: string(match[1]), BinDir: binDir}, nil
}
