package measure

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

	"lapse/internal/child"
)

// Slot is the one that the commands are told of.
const Slot = "lapse_bench"

// Lapse is a binary, and a folder for its keys and configuration.
type Lapse struct{ Binary, Dir string }

// Install makes Lapse in a database with the policies of a file.
func (l Lapse) Install(ctx context.Context, settings, policies string) error {
	if err := l.Init(ctx, settings); err != nil {
		return err
	}
	return l.Apply(ctx, settings, policies)
}

// Init makes Lapse in a database.
func (l Lapse) Init(ctx context.Context, settings string) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	_, err := l.Run(ctx, settings, "init", "--keys", l.keys())
	return err
}

// Apply applies a policy file.
func (l Lapse) Apply(ctx context.Context, settings, policies string) error {
	file := filepath.Join(l.Dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		return err
	}
	_, err := l.Run(ctx, settings, "apply", "--yes", "-f", file)
	return err
}

// Run runs a command of the binary to its end.
func (l Lapse) Run(ctx context.Context, settings string, args ...string) (Spent, error) {
	cmd, err := l.command(ctx, settings, args)
	if err != nil {
		return Spent{}, err
	}
	return Run(cmd)
}

func (l Lapse) keys() string { return filepath.Join(l.Dir, "keys") }

// command is a command of the binary. The settings are those of its lapse.yaml but for slot and keys. The login is a superuser: the
// databases are throw-away.
func (l Lapse) command(ctx context.Context, settings string, args []string) (*exec.Cmd, error) {
	config, err := os.CreateTemp(l.Dir, "lapse-*.yaml")
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(config, "slot: %s\nkeys: %s\n%s", Slot, l.keys(), settings)
	if err := errors.Join(err, config.Close()); err != nil {
		return nil, err
	}
	// A home of its own: lapse remembers there what it deleted from, and takes the next copy of a database for a restored one.
	home, err := os.MkdirTemp(l.Dir, "home-")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, l.Binary, args...)
	cmd.Env = []string{"LAPSE_CONFIG=" + config.Name(), "HOME=" + home, "LAPSE_SUPERUSER=allow"}
	return cmd, nil
}

// Spent is what a command took.
type Spent struct {
	Seconds float64
	CPU     time.Duration
	Memory  int64  // the most that was resident, in bytes
	Output  []byte // standard output
	Said    string // standard error
}

// Run runs a command to its end.
func Run(cmd *exec.Cmd) (Spent, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return Spent{}, err
	}
	memory := WatchPeak(cmd.Process.Pid)
	err := cmd.Wait()
	s := Spent{Seconds: time.Since(begun).Seconds(), Memory: memory(), Output: stdout.Bytes(), Said: stderr.String()}
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", commandLine(cmd), err, s.Said)
	}
	s.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s, nil
}

// commandLine is a program with its first argument.
func commandLine(cmd *exec.Cmd) string {
	return filepath.Base(cmd.Path) + " " + cmd.Args[1]
}

// Process is a command that is under way.
type Process struct {
	*child.Process
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Start starts a command of the binary.
func (l Lapse) Start(ctx context.Context, settings string, args ...string) (*Process, error) {
	cmd, err := l.command(context.WithoutCancel(ctx), settings, args)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd}
	cmd.Stderr = &p.stderr
	p.Process, err = child.Start(cmd, syscall.SIGKILL)
	return p, err
}

// Stop ends the command as a person would, if it has not ended, and waits for it. Exit codes up to ok are fine.
func (p *Process) Stop(ok int) error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	<-p.Exited()
	if code := p.State().ExitCode(); code < 0 || code > ok {
		return fmt.Errorf("%s: %s\n%s", commandLine(p.cmd), p.State(), p.stderr.Bytes())
	}
	return nil
}
