//go:build long

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// calendar is a server and a lapse whose clocks a test sets, so that months go past in minutes: the server has a library loaded before the C
// library, which adds to its time, and lapse, which that cannot reach, is built with a time.Now that adds the same. (Under libfaketime a backend
// crashed: it allocates in what a signal handler calls.)
type calendar struct {
	t       *testing.T
	file    *os.File // has the shift in seconds: the library maps it
	shift   int64
	db      *pgtest.DB
	lapse   string
	machine *machine
}

// clockLibrary calls nothing that a signal handler may not.
const clockLibrary = `
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift;

__attribute__((constructor)) static void map_shift(void) {
	const char *name = getenv("CALENDAR_FILE");
	int file = name ? open(name, O_RDONLY) : -1;
	if (file < 0)
		return;
	void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
	if (at != MAP_FAILED)
		shift = at;
	close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
	int failed = syscall(SYS_clock_gettime, clock, at);
	if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		at->tv_sec += *shift;
	return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
`

func newCalendar(t *testing.T, at time.Time) *calendar {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler: apt-get install -y gcc libc6-dev")
	}
	dir, err := os.MkdirTemp("", "lapse-calendar-") // the server's account reads it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &calendar{t: t, lapse: filepath.Join(dir, "lapse")}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockLibrary), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("compile a clock: %v\n%s", err, out)
	}
	c.build(dir)
	if c.file, err = os.OpenFile(filepath.Join(dir, "shift"), os.O_CREATE|os.O_WRONLY, 0o644); err != nil { //nolint:gosec // the server's account reads it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.file.Close() })
	c.set(at)
	c.db = pgtest.Solo(t, pgtest.Newest(t), pgtest.Env("LD_PRELOAD="+library, "CALENDAR_FILE="+c.file.Name()))
	return c
}

// set sets both clocks. Their time goes on from there.
func (c *calendar) set(at time.Time) {
	c.t.Helper()
	c.shift = int64(time.Until(at).Round(time.Second) / time.Second)
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.shift)), 0); err != nil {
		c.t.Fatal(err)
	}
	if c.machine != nil {
		c.machine.env[len(c.machine.env)-1] = c.variable()
	}
}

// variable tells lapse the shift.
func (c *calendar) variable() string { return fmt.Sprintf("CALENDAR_SHIFT=%d", c.shift) }

// newMachine is newMachine with a lapse that lives by the calendar.
func (c *calendar) newMachine(lapseYAML string) *machine {
	c.t.Helper()
	m := &machine{t: c.t, dir: c.t.TempDir(), bin: c.lapse}
	m.env = []string{
		"LAPSE_CONFIG=" + m.write("lapse.yaml", lapseYAML), "HOME=" + m.dir, "PATH=" + os.Getenv("PATH"), allowSuperuser, c.variable(),
	}
	c.machine = m
	return m
}

// build builds lapse with a shifted time.Now: nothing else of it is otherwise.
func (c *calendar) build(dir string) {
	c.t.Helper()
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		c.t.Fatal(err)
	}
	if !strings.Contains(string(text), now) {
		c.t.Fatal("Go's time.Now begins in another way: see what this test puts into it")
	}
	files := map[string]string{
		"time.go": strings.Replace(string(text), now, now+"\tsec += testShift\n", 1),
		"shift.go": `package time

import "syscall"

var testShift = func() (seconds int64) {
	text, _ := syscall.Getenv("CALENDAR_SHIFT")
	negative := len(text) > 0 && text[0] == '-'
	for _, c := range text {
		if c >= '0' && c <= '9' {
			seconds = seconds*10 + int64(c-'0')
		}
	}
	if negative {
		return -seconds
	}
	return seconds
}()
`,
	}
	replace := map[string]string{}
	for name, content := range files {
		replace[filepath.Join(library, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", c.lapse, ".").CombinedOutput(); err != nil {
		c.t.Fatalf("build lapse with another clock: %v\n%s", err, out)
	}
}
