// Package browsertest lets a test look at a page with a real Chromium. The program that drives it is in deploy/test/browser, a module of its
// own: the product needs no browser. Its commands are listed there.
package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// axeVersion is the axe-core that pages are examined with.
const axeVersion = "4.14.1"

// Browser is one tab. Not safe for concurrent use.
type Browser struct {
	t       testing.TB
	to      io.Writer
	answers *bufio.Scanner
	axe     string // file
}

// Open starts a Chromium. Where there is none, or no npm for axe-core, the test is skipped.
func Open(t testing.TB) *Browser {
	t.Helper()
	for program, what := range map[string]string{"chromium": "apt-get install chromium", "npm": "apt-get install npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is missing: " + what)
		}
	}
	dir := t.TempDir()
	run(t, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "axe-core@"+axeVersion)
	gomod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "browser")
	run(t, filepath.Join(filepath.Dir(strings.TrimSpace(string(gomod))), "deploy", "test"), "go", "build", "-o", program, "./browser")
	b := &Browser{t: t, axe: filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program) // it ends when its input does
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = to.Close() // the program ends, and Chromium with it
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser's program ended with %v", err)
		}
	})
	b.to, b.answers = to, bufio.NewScanner(from)
	b.answers.Buffer(nil, 1<<24)
	b.answer("start")
	return b
}

func run(t testing.TB, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, text)
	}
}

// Do gives one command, and returns the answer's value in JSON, "" for none.
func (b *Browser) Do(command string) string {
	b.t.Helper()
	if _, err := fmt.Fprintln(b.to, command); err != nil {
		b.t.Fatal(err)
	}
	return b.answer(command)
}

func (b *Browser) answer(command string) string {
	b.t.Helper()
	if !b.answers.Scan() {
		b.t.Fatalf("%s: the browser is gone: %v", command, b.answers.Err())
	}
	state, value, _ := strings.Cut(b.answers.Text(), " ")
	if state != "ok" {
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		b.t.Fatalf("%s: %s", command, value)
	}
	return value
}

// Axe wants nothing serious or critical from axe-core.
func (b *Browser) Axe(what string) {
	b.t.Helper()
	for _, finding := range b.list("axe " + b.axe) {
		b.t.Errorf("%s: axe finds %s", what, finding)
	}
}

// Quiet wants no complaint of the console or the Content-Security-Policy since the last time.
func (b *Browser) Quiet(what string) {
	b.t.Helper()
	for _, complaint := range b.list("complaints") {
		b.t.Errorf("%s: the browser complains of %s", what, complaint)
	}
}

func (b *Browser) list(command string) (all []string) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.Do(command)), &all); err != nil {
		b.t.Fatal(err)
	}
	return all
}
