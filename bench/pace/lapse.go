package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const policyFile = `policies:
  - name: bench
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    pace: %s
`

// install makes Lapse in the database.
func (p *plan) install(ctx context.Context, s *server) error {
	return p.command(ctx, s, "init", "--keys", filepath.Join(p.dir, "keys")).Run()
}

// process is a `lapse run` that is under way.
type process struct {
	command *exec.Cmd
	stderr  *bytes.Buffer
	ended   chan struct{} // closed when it has ended
	err     error
}

// start applies the policy at a pace, lets Lapse run, and returns when it deletes.
func (p *plan) start(ctx context.Context, s *server, pace string) (*process, error) {
	file := filepath.Join(p.dir, pace+".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, policyFile, pace), 0o600); err != nil {
		return nil, err
	}
	if text, err := p.command(ctx, s, "apply", "--yes", "-f", file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("lapse apply: %w\n%s", err, text)
	}
	var before int64
	const batches = "select count(*) from lapse.batch_result"
	if err := s.conn.QueryRow(ctx, batches).Scan(&before); err != nil {
		return nil, err
	}
	made := &process{command: p.command(ctx, s, "run", "--now", "bench"), stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	made.command.Stderr = made.stderr
	if err := made.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		made.err = made.command.Wait()
		close(made.ended)
	}()
	// Some batches, so that their size is what it comes to.
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for n := int64(0); n < before+10; {
		select {
		case <-made.ended:
			return made, made.stop()
		case <-ticker.C:
		}
		if err := s.conn.QueryRow(ctx, batches).Scan(&n); err != nil {
			return nil, fmt.Errorf("wait for the first batches: %w", err)
		}
	}
	return made, nil
}

// stop ends the process as a person would.
func (p *process) stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	<-p.ended
	if code := p.command.ProcessState.ExitCode(); code > 1 { // 1: it was stopped before it was done
		return fmt.Errorf("lapse run: %w\n%s", p.err, p.stderr.Bytes())
	}
	return nil
}

// command is a command of the binary.
func (p *plan) command(ctx context.Context, s *server, args ...string) *exec.Cmd {
	config := filepath.Join(p.dir, "lapse.yaml")
	text := fmt.Sprintf("database: %s\nslot: lapse_bench\nkeys: %s\naudit: off\nlimits: {workers: %d}\n",
		s.server.SocketURL("postgres", database), filepath.Join(p.dir, "keys"), p.workers)
	_ = os.WriteFile(config, []byte(text), 0o600) // without it the command says so
	cmd := exec.CommandContext(ctx, p.lapse, args...)
	// The login is a superuser: the database is a throw-away.
	cmd.Env = []string{"LAPSE_CONFIG=" + config, "HOME=" + p.dir, "LAPSE_SUPERUSER=allow"}
	return cmd
}
