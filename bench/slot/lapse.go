package main

import (
	"bytes"
	"context"
	"errors"
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
    pace: unlimited
`

// setUp makes Lapse in the database.
func (p *place) setUp(ctx context.Context) error {
	file := filepath.Join(p.dir, "policies.yaml")
	if err := errors.Join(os.MkdirAll(p.dir, 0o700), os.WriteFile(file, []byte(policyFile), 0o600)); err != nil {
		return err
	}
	if _, err := p.run(ctx, true, "init", "--keys", filepath.Join(p.dir, "keys")); err != nil {
		return err
	}
	if _, err := p.run(ctx, true, "apply", "--yes", "-f", file); err != nil {
		return err
	}
	_, err := p.run(ctx, true, "audit", "--once")
	return err
}

// deleteDue deletes what is due. The audit is off meanwhile: the run would wait for an auditor.
func (p *place) deleteDue(ctx context.Context) error {
	const require = "update lapse.installation set audit_required = "
	if err := p.execute(ctx, require+"false"); err != nil {
		return err
	}
	if _, err := p.run(ctx, false, "run", "--now", "bench", "--json"); err != nil {
		return err
	}
	return p.execute(ctx, require+"true")
}

// spent is what a client took.
type spent struct {
	seconds float64
	cpu     time.Duration
	memory  int64 // the most that was resident, in bytes
}

// timed runs a command to its end.
func timed(cmd *exec.Cmd) (spent, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	if err != nil {
		return spent{}, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, stderr.Bytes())
	}
	return spentBy(cmd, took), nil
}

// spentBy is what a command that has ended took.
func spentBy(cmd *exec.Cmd, took time.Duration) spent {
	s := spent{seconds: took.Seconds(), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.memory = usage.Maxrss << 10
	}
	return s
}

// run runs a command of the binary.
func (p *place) run(ctx context.Context, audited bool, args ...string) (spent, error) {
	cmd, err := p.command(ctx, audited, args...)
	if err != nil {
		return spent{}, err
	}
	return timed(cmd)
}

// command is a command of the binary.
func (p *place) command(ctx context.Context, audited bool, args ...string) (*exec.Cmd, error) {
	config := filepath.Join(p.dir, fmt.Sprintf("lapse-%v.yaml", audited))
	text := fmt.Sprintf("database: %s\nslot: %s\nkeys: %s\n", p.url(), slot, filepath.Join(p.dir, "keys"))
	if audited {
		text += fmt.Sprintf("kafka: { brokers: [%q] }\ntopics: { system: %s, user: %s, log: %s, partitions: %d, replication: 1 }\n",
			p.broker.Addr(), systemTopic, userTopic, logTopic, partitions)
	} else {
		text += "audit: off\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, p.lapse, args...)
	// The login is a superuser: the database is a throw-away.
	cmd.Env = []string{"LAPSE_CONFIG=" + config, "HOME=" + p.dir, "LAPSE_SUPERUSER=allow"}
	return cmd, nil
}

// The topics, and how many partitions they have.
const (
	partitions  = 6
	systemTopic = "bench.system"
	userTopic   = "bench.user"
	logTopic    = "bench.log"
)
