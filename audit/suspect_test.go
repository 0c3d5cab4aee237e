package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	keeper "lapse/internal/child"
)

const (
	// What an auditor logs.
	streaming   = "audit streaming"
	fencedWords = "fenced by another publisher"
)

// suspect is an auditor in a process of its own, with all that it has said.
type suspect struct {
	number  int
	process *keeper.Process
	log     *auditLog
}

// newSuspect starts an auditor. Its sessions have its name.
func (o *torture) newSuspect() *suspect {
	o.t.Helper()
	o.started++
	a := &suspect{number: o.started, log: &auditLog{}}
	s := o.rig.settings
	if o.routed {
		s.Chosen = (&drawing{random: o.random}).choose()
	}
	s.URL += "&application_name=" + a.name()
	text, err := json.Marshal(s)
	o.must(err)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childSettings+"="+string(text))
	command.Stderr = a.log
	a.process, err = keeper.Start(command, syscall.SIGKILL)
	o.must(err)
	o.t.Cleanup(func() {
		a.kill(o.t)
		if o.t.Failed() {
			o.t.Logf("auditor %d's log:\n%s", a.number, a.log.tail())
		}
	})
	return a
}

func (a *suspect) name() string { return fmt.Sprintf("auditor-%d", a.number) }

// kill is kill -9.
func (a *suspect) kill(t *testing.T) {
	t.Helper()
	_ = a.process.Signal(syscall.SIGKILL)
	<-a.process.Exited()
}

// freeze and thaw are SIGSTOP and SIGCONT. One that has ended meanwhile is judged at the end of the round.
func (a *suspect) freeze(t *testing.T) { a.signal(t, syscall.SIGSTOP) }

func (a *suspect) thaw(t *testing.T) { a.signal(t, syscall.SIGCONT) }

func (a *suspect) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := a.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

func (a *suspect) ended() bool { return a.process.State() != nil }

// fenced says whether the auditor has been told that somebody else publishes.
func (a *suspect) fenced() bool { return a.log.count(fencedWords) > 0 }

// auditLog keeps what an auditor logs.
type auditLog struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *auditLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

func (l *auditLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

func (l *auditLog) count(words string) int { return strings.Count(l.String(), words) }

// after says whether the second is said after the first.
func (l *auditLog) after(first, second string) bool {
	_, behind, found := strings.Cut(l.String(), first)
	return found && strings.Contains(behind, second)
}

// There are thousands of these lines.
var common = []string{"the slot is in use", "a transaction is not what the ledger says", "fits none of the tag keys"}

// tail is the end of the log, without the most common lines.
func (l *auditLog) tail() string {
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return slices.ContainsFunc(common, func(words string) bool { return strings.Contains(line, words) })
	})
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
