package child

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a running child, or one that has ended.
type Process struct {
	process *os.Process
	exited  chan struct{}
	state   *os.ProcessState // set before exited is closed
}

// Start starts cmd. The child gets the signal onDeath when this process ends. Start must be the only caller of cmd's
// methods.
func Start(cmd *exec.Cmd, onDeath syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = onDeath
	p := &Process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // The exit status is in ProcessState.
		p.state = cmd.ProcessState
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.process.Pid }

// Exited is closed when the child has ended and has been reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State says how the child ended. It is nil before Exited is closed.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.exited:
		return p.state
	default:
		return nil
	}
}

// Signal sends a signal. os.ErrProcessDone says that the child has ended; its id is never signalled after that.
func (p *Process) Signal(signal syscall.Signal) error { return p.process.Signal(signal) }

// Wait waits until the child has ended, or for the context.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d still runs: %w", p.PID(), context.Cause(ctx))
	}
}
