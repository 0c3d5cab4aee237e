package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lapse/internal/fixture"
)

// builder builds lapse as `make build` does, once for all tests.
type builder struct {
	once sync.Once
	dir  string
	err  error
}

var built builder

func (b *builder) binary() (string, error) {
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "lapse-bin-"); b.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", b.path(), ".").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("build lapse: %w\n%s", err, out)
		}
	})
	return b.path(), b.err
}

func (b *builder) path() string { return filepath.Join(b.dir, "lapse") }

func (b *builder) remove() error {
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// allowSuperuser lets tests that are not about logins use the superuser of their server for everything.
const allowSuperuser = "LAPSE_SUPERUSER=allow"

// machine is a place where the built binary runs: a folder with lapse.yaml and keys, and an environment.
type machine struct {
	t   *testing.T
	dir string
	bin string
	env []string
}

func newMachine(t *testing.T, lapseYAML string) *machine {
	t.Helper()
	bin, err := built.binary()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: t.TempDir(), bin: bin}
	m.env = []string{
		"LAPSE_CONFIG=" + m.write("lapse.yaml", lapseYAML), "HOME=" + m.dir, "PATH=" + os.Getenv("PATH"), allowSuperuser,
	}
	return m
}

func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// lapse runs a command that must succeed and returns its results.
func (m *machine) lapse(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.bin, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		m.t.Fatalf("lapse %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), log.String())
	}
	if err := checkEnvelope(args, out.String()); err != nil {
		m.t.Fatalf("lapse %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// daemon is a lapse that runs until it is stopped, as a process of its own.
type daemon struct {
	m    *machine
	cmd  *exec.Cmd
	log  string // file
	done chan error
}

// serve starts `lapse serve`.
func (m *machine) serve() *daemon {
	m.t.Helper()
	return m.start("serve", "--http", "127.0.0.1:0", "--log-format", "json")
}

// start starts a command. Whatever becomes of the test, and of the program that runs the tests, it is gone afterwards.
func (m *machine) start(args ...string) *daemon {
	m.t.Helper()
	log, err := os.CreateTemp(m.dir, args[0]+"-*.log")
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	d := &daemon{m: m, log: log.Name(), done: make(chan error, 1)}
	d.cmd = exec.Command(m.bin, args...)
	d.cmd.Dir, d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = m.dir, m.env, log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // The signal comes when the thread ends that has started it.
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.done <- d.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		d.kill()
		if m.t.Failed() {
			text, _ := os.ReadFile(d.log)
			m.t.Logf("what lapse %s, pid %d, wrote:\n%s", args[0], d.cmd.Process.Pid, last(text, 6000))
		}
	})
	return d
}

func last(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// kill ends the process as the kernel would when memory runs out.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	select {
	case err := <-d.done:
		d.done <- err
	case <-time.After(time.Minute):
		d.m.t.Error("lapse outlives SIGKILL")
	}
}

// stop asks the process to end, which it must do in time and without complaint.
func (d *daemon) stop() {
	d.m.t.Helper()
	began := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.m.t.Fatalf("lapse has ended by itself: %v", err)
	}
	select {
	case err := <-d.done:
		d.done <- err
		if err != nil {
			d.m.t.Errorf("lapse ended with %v", err)
		}
		d.m.t.Logf("lapse stopped in %v", time.Since(began).Round(time.Millisecond))
	case <-time.After(time.Minute):
		d.m.t.Fatal("lapse does not stop")
	}
}

// ended waits until the process has ended by itself, and returns its exit code.
func (d *daemon) ended() int {
	d.m.t.Helper()
	select {
	case err := <-d.done:
		d.done <- err
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		d.m.t.Fatal("lapse does not end")
		return -1
	}
}

// alive fails the test if the process has ended.
func (d *daemon) alive() error {
	select {
	case err := <-d.done:
		d.done <- err
		return fmt.Errorf("lapse has ended: %w", errors.Join(errors.New("by itself"), err))
	default:
		return nil
	}
}

// wrote waits until the process has written a text.
func (d *daemon) wrote(text string) {
	d.m.t.Helper()
	ctx, cancel := context.WithTimeout(d.m.t.Context(), time.Minute)
	defer cancel()
	err := eventually(ctx, func() (bool, error) {
		all, err := os.ReadFile(d.log)
		return bytes.Contains(all, []byte(text)), errors.Join(err, d.alive())
	})
	if err != nil {
		d.m.t.Fatalf("wait until lapse writes %q: %v", text, err)
	}
}

// address is where the process serves HTTP, as its log says.
func (d *daemon) address(ctx context.Context) (address string, err error) {
	err = eventually(ctx, func() (bool, error) {
		text, err := os.ReadFile(d.log)
		if err != nil {
			return false, err
		}
		for line := range bytes.Lines(text) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving HTTP" {
				address = entry.Address
			}
		}
		return address != "", d.alive()
	})
	return address, err
}

// ready waits until /readyz says what is wanted.
func (d *daemon) ready(wanted int) {
	d.m.t.Helper()
	ctx, cancel := context.WithTimeout(d.m.t.Context(), time.Minute)
	defer cancel()
	address, err := d.address(ctx)
	if err != nil {
		d.m.t.Fatal(err)
	}
	err = eventually(ctx, func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, d.alive()
		}
		return answer.StatusCode == wanted, errors.Join(answer.Body.Close(), d.alive())
	})
	if err != nil {
		d.m.t.Fatalf("wait for /readyz to say %d: %v", wanted, err)
	}
}

var eventually = fixture.Until
