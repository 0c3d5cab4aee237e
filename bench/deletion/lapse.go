package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const policyFile = `policies:
  - name: bench
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    pace: unlimited
    batch: 20000
`

// install makes Lapse in the database that copies are made of, with an armed policy.
func (p *plan) install(ctx context.Context, s *server) error {
	file := filepath.Join(p.dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policyFile), 0o600); err != nil {
		return err
	}
	_, err := p.command(ctx, s, installed, 1, "init", "--keys", filepath.Join(p.dir, "keys"))
	if err == nil {
		_, err = p.command(ctx, s, installed, 1, "apply", "--yes", "-f", file)
	}
	return err
}

// lapseRuns lets a way's processes run side by side.
func (p *plan) lapseRuns(ctx context.Context, s *server, w *way) (float64, error) {
	errs := make([]error, w.processes)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range w.processes {
		all.Go(func() {
			spent, err := p.command(ctx, s, measured, w.workers, "run", "--now", "bench", "--json")
			s.add(spent)
			errs[i] = err
		})
	}
	all.Wait()
	return time.Since(begun).Seconds(), errors.Join(errs...)
}

// configure writes the configuration of commands in a database, and returns its path.
func (p *plan) configure(s *server, database string, workers int) (string, error) {
	config := filepath.Join(p.dir, fmt.Sprintf("lapse-%s-%d.yaml", database, workers))
	text := fmt.Sprintf("database: %s\nslot: lapse_bench\nkeys: %s\naudit: off\nlimits: {workers: %d}\n",
		s.server.SocketURL("postgres", database), filepath.Join(p.dir, "keys"), workers)
	return config, os.WriteFile(config, []byte(text), 0o600)
}

// environment is a command's. The login is a superuser: the databases are throw-away.
func (p *plan) environment(config string) []string {
	return []string{"LAPSE_CONFIG=" + config, "HOME=" + p.dir, "LAPSE_SUPERUSER=allow"}
}

// command runs a command of the binary in a database, and returns the CPU time that it took.
func (p *plan) command(ctx context.Context, s *server, database string, workers int, args ...string) (time.Duration, error) {
	config, err := p.configure(s, database, workers)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, p.lapse, args...)
	cmd.Env = p.environment(config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("lapse %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
