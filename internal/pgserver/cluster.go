package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"lapse/internal/child"
)

// defaultSettings are what a server has if Options.Settings does not say otherwise.
func defaultSettings() map[string]string {
	return map[string]string{
		"wal_level":             "logical",
		"max_replication_slots": "100",
		"max_wal_senders":       "100",
		"max_connections":       "200",
		"shared_buffers":        "64MB",
		"fsync":                 "off",
		"log_line_prefix":       "%m [%p] %u@%d %a ",
		"log_error_verbosity":   "verbose",
		"logging_collector":     "off",
	}
}

// trustLoopback ends pg_hba.conf.
var trustLoopback = []string{
	"local all         all              trust",
	"host  all         all 127.0.0.1/32 trust",
	"local replication all              trust",
	"host  replication all 127.0.0.1/32 trust",
}

// makeCluster makes a cluster, unless the data directory has one in it, and writes the configuration.
func (s *Server) makeCluster(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.dataDir, "PG_VERSION")); err == nil {
		return nil
	}
	err := s.initialize(ctx)
	if err == nil {
		err = s.configure()
	}
	return err
}

// initialize makes the data directory: a copy, or by initdb.
func (s *Server) initialize(ctx context.Context) error {
	if s.options.From != nil {
		return s.put(s.options.From, nil)
	}
	if err := os.Mkdir(s.dataDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := s.account.Own(s.dataDir); err != nil {
		return err
	}
	args := append([]string{
		"-D", s.dataDir, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync",
	}, s.options.InitArgs...)
	log, err := s.openLog()
	if err != nil {
		return err
	}
	initdb := s.command("initdb", log, args...)
	process, err := child.Start(initdb, syscall.SIGKILL)
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	if err := process.Wait(ctx); err != nil {
		return errors.Join(err, process.Signal(syscall.SIGKILL))
	}
	if !process.State().Success() {
		return fmt.Errorf("initdb: %s\n%s", process.State(), child.Tail(s.logFile, 20))
	}
	return nil
}

// configure writes postgresql.conf and pg_hba.conf. Port, addresses and socket are on the command line instead.
func (s *Server) configure() error {
	settings := defaultSettings()
	maps.Copy(settings, s.options.Settings)
	var conf strings.Builder
	writeSettings(&conf, settings)
	hba := strings.Join(append(slices.Clone(s.options.HBA), trustLoopback...), "\n") + "\n"

	path := filepath.Join(s.dataDir, "postgresql.conf")
	made, err := os.ReadFile(path) // It has the time zone and locales that initdb chose.
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(made, conf.String()...), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dataDir, "pg_hba.conf"), []byte(hba), 0o600)
}

// writeSettings writes settings as lines of postgresql.conf.
func writeSettings(conf *strings.Builder, settings map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
}

// command is a program of the install, run as the server's account, without the caller's PG* variables.
func (s *Server) command(name string, log *os.File, args ...string) *exec.Cmd {
	cmd := s.account.Command(filepath.Join(s.binDir, name), args, s.dataDir)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "PG") })
	cmd.Env = append(cmd.Env, s.options.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}

func (s *Server) openLog() (*os.File, error) {
	return os.OpenFile(s.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
