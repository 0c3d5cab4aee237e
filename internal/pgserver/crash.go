package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill ends every process of the server at one moment, as a crash would (kill -9). It returns when they are gone. What
// was committed is there after the next Start; nothing else is promised.
//
// The postmaster is stopped first: it can neither start another process nor tell the others to leave in good order.
func (s *Server) Kill() error {
	if !s.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	family, err := s.holdPostmaster(ctx)
	if err != nil {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}
	for _, pid := range family {
		// A child that has just ended is still there as a zombie: the stopped postmaster has not reaped it.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill PostgreSQL: %w", err)
		}
	}
	if err := s.process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}
	if err := s.process.Wait(ctx); err != nil {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}
	// As long as one of them is attached to the shared memory, the next start is refused.
	for _, pid := range family {
		if err := await(ctx, func() bool { return stateOf(pid) == gone }); err != nil {
			return fmt.Errorf("kill PostgreSQL: process %d is still there: %w", pid, err)
		}
	}
	return nil
}

// holdPostmaster stops the postmaster (SIGSTOP) and lists its children, which are all there will be until it goes on.
func (s *Server) holdPostmaster(ctx context.Context) (family []int, err error) {
	if err := s.process.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	if err := await(ctx, func() bool { return stateOf(s.process.PID()) != running }); err != nil {
		return nil, fmt.Errorf("stop the postmaster: %w", err)
	}
	return childrenOf(s.process.PID())
}

// Freeze holds every process of the server (SIGSTOP). Its connections stay open and nobody answers, as with a machine
// that has stopped. It returns when all are stopped.
func (s *Server) Freeze() error {
	if !s.Running() {
		return errors.New("freeze PostgreSQL: it is not running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	family, err := s.holdPostmaster(ctx)
	if err != nil {
		return fmt.Errorf("freeze PostgreSQL: %w", err)
	}
	for _, pid := range family {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("freeze PostgreSQL: %w", err)
		}
	}
	for _, pid := range family {
		if err := await(ctx, func() bool { return stateOf(pid) != running }); err != nil {
			return fmt.Errorf("freeze PostgreSQL: process %d goes on: %w", pid, err)
		}
	}
	return nil
}

// Thaw lets a frozen server go on, the postmaster last.
func (s *Server) Thaw() error {
	if !s.Running() {
		return nil
	}
	family, err := childrenOf(s.process.PID())
	if err != nil {
		return fmt.Errorf("thaw PostgreSQL: %w", err)
	}
	for _, pid := range family {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("thaw PostgreSQL: %w", err)
		}
	}
	if err := s.process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("thaw PostgreSQL: %w", err)
	}
	return nil
}

// Frozen says whether the server is held by Freeze.
func (s *Server) Frozen() bool { return s.Running() && stateOf(s.process.PID()) == stopped }

func await(ctx context.Context, condition func() bool) error {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// processState is what a signal to a process has come to.
type processState int

const (
	running processState = iota
	stopped
	gone // or a zombie: it holds nothing any more
)

func stateOf(pid int) processState {
	stat, err := readStat(pid)
	switch {
	case err != nil || stat.state == "Z" || stat.state == "X":
		return gone
	case stat.state == "T" || stat.state == "t":
		return stopped
	default:
		return running
	}
}

func childrenOf(parent int) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var children []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil && stat.parent == parent {
			children = append(children, pid)
		}
	}
	return children, nil
}

type processStat struct {
	state  string
	parent int
}

// readStat reads /proc/PID/stat: "PID (name) state parent …". The name may hold spaces and parentheses.
func readStat(pid int) (processStat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 2 {
		return processStat{}, fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	parent, err := strconv.Atoi(fields[1])
	return processStat{state: fields[0], parent: parent}, err
}

// removeSegment frees the System V segment that a killed server leaves, by the id that it wrote into postmaster.pid. A
// server that stopped in good order has freed it and removed the file. The kernel has room for 4096 of them.
func (s *Server) removeSegment() error {
	lines := s.pidFile()
	if s.Running() || len(lines) < 7 {
		return nil
	}
	fields := strings.Fields(lines[6])
	if len(fields) != 2 {
		return nil
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return fmt.Errorf("free shared memory: %w", err)
	}
	const ipcRMID = 0
	_, _, errno := syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), ipcRMID, 0)
	if errno != 0 && errno != syscall.EINVAL && errno != syscall.EIDRM {
		return fmt.Errorf("free shared memory: %w", errno)
	}
	return nil
}
