package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"lapse/internal/measure"
)

// setUp makes Lapse in the database.
func (p *place) setUp(ctx context.Context) error {
	file := filepath.Join(p.dir, "policies.yaml")
	if err := errors.Join(os.MkdirAll(p.dir, 0o700), os.WriteFile(file, []byte(p.of.Identity.policyFile()), 0o600)); err != nil {
		return err
	}
	if _, err := p.run(ctx, withAudit, "init", "--keys", filepath.Join(p.dir, "keys")); err != nil {
		return err
	}
	if _, err := p.run(ctx, withAudit, "apply", "--yes", "-f", file); err != nil {
		return err
	}
	if p.of.Identity == full { // apply refuses it
		if err := p.execute(ctx, "alter table shop.sessions replica identity full"); err != nil {
			return err
		}
	}
	_, err := p.run(ctx, withAudit, "audit", "--once")
	return err
}

// deleteDue deletes what is due. The audit is off meanwhile: the run would wait for an auditor.
func (p *place) deleteDue(ctx context.Context) error {
	const require = "update lapse.installation set audit_required = "
	if err := p.execute(ctx, require+"false"); err != nil {
		return err
	}
	if _, err := p.run(ctx, withoutAudit, "run", "--now", "bench", "--json"); err != nil {
		return err
	}
	return p.execute(ctx, require+"true")
}

// spent is what a client took.
type spent struct {
	seconds float64
	cpu     time.Duration
	memory  int64  // the most that was resident, in bytes
	said    string // on standard error
	warmUp  *warmUp
}

// timed runs a command to its end.
func timed(cmd *exec.Cmd) (spent, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return spent{}, err
	}
	memory := measure.WatchPeak(cmd.Process.Pid)
	err := cmd.Wait()
	s := spent{seconds: time.Since(begun).Seconds(), memory: memory(), said: stderr.String()}
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, s.said)
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s, nil
}

// settings say which lapse.yaml a command has.
type settings string

const (
	withAudit    settings = "audit"
	withoutAudit settings = "no-audit"
)

// run runs a command of the binary.
func (p *place) run(ctx context.Context, with settings, args ...string) (spent, error) {
	cmd, err := p.command(ctx, with, args...)
	if err != nil {
		return spent{}, err
	}
	return timed(cmd)
}

// command is a command of the binary.
func (p *place) command(ctx context.Context, with settings, args ...string) (*exec.Cmd, error) {
	config := filepath.Join(p.dir, fmt.Sprintf("lapse-%s.yaml", with))
	text := fmt.Sprintf("database: %s\nslot: %s\nkeys: %s\n", p.url(), slot, filepath.Join(p.dir, "keys"))
	if with != withoutAudit {
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
