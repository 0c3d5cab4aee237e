package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	// JIT says that this server compiles expensive statements where the setting jit is on. Distributions build it so;
	// the servers that make servers fetches have no compiler.
	JIT bool
}

// Installed lists the PostgreSQL servers of this machine, one for each major version, oldest first: the one whose programs are in
// LAPSE_PG_BIN, those that make servers fetched, then those of the system's packages (/usr/lib/postgresql).
func Installed() ([]Install, error) {
	dir, err := servers.Dir()
	if err != nil {
		return nil, err
	}
	var candidates []string
	if named := os.Getenv("LAPSE_PG_BIN"); named != "" {
		candidates = append(candidates, named)
	}
	for _, pin := range servers.PostgresPins() {
		candidates = append(candidates, filepath.Join(servers.PostgresDir(dir, pin.Major), "bin"))
	}
	system, err := systemBinDirs()
	if err != nil {
		return nil, err
	}
	return inspectAll(append(candidates, system...)), nil
}

// FindPackaged finds the server with JIT of this system's own packages: what most databases run on. Of several it is the
// oldest. The error wraps ErrNotInstalled if there is none.
func FindPackaged() (Install, error) {
	system, err := systemBinDirs()
	if err != nil {
		return Install{}, err
	}
	for _, install := range inspectAll(system) {
		if install.JIT && install.Major >= servers.PostgresPins()[0].Major {
			return install, nil
		}
	}
	return Install{}, fmt.Errorf("a packaged PostgreSQL with JIT (/usr/lib/postgresql/*/lib/llvmjit.so) is %w: "+
		"run apt-get install -y postgresql", ErrNotInstalled)
}

// systemBinDirs are where Debian and the like put servers.
func systemBinDirs() ([]string, error) { return filepath.Glob("/usr/lib/postgresql/*/bin") }

// inspectAll lists the servers in these folders, the first of each major version, oldest first.
func inspectAll(candidates []string) []Install {
	var found []Install
	for _, binDir := range candidates {
		install, err := inspect(binDir)
		if err != nil || slices.ContainsFunc(found, func(other Install) bool { return other.Major == install.Major }) {
			continue
		}
		found = append(found, install)
	}
	slices.SortFunc(found, func(a, b Install) int { return a.Major - b.Major })
	return found
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
	_, noJIT := os.Stat(filepath.Join(filepath.Dir(binDir), "lib", "llvmjit.so"))
	return Install{Major: major, Version: string(match[1]), BinDir: binDir, JIT: noJIT == nil}, nil
}
