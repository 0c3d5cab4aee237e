// Package browsertest lets a test look at a page with a real Chromium. The program that drives it is in deploy/test/browser, a module of its
// own: the product needs no browser. Its commands are listed there.
package browsertest

import (
	"bufio"
	"bytes"
	"cmp"
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
	shots   string // folder
}

// Open starts a Chromium. Where there is none, or no npm for axe-core, the test is skipped. LAPSE_SHOTS names a folder that keeps the pictures.
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
	b := &Browser{t: t, axe: filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"), shots: cmp.Or(os.Getenv("LAPSE_SHOTS"), dir)}
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

// Shot keeps a picture of the whole page.
func (b *Browser) Shot(name string) {
	b.t.Helper()
	b.Do("shot " + filepath.Join(b.shots, name+".png"))
}

// Print wants a PDF of the page on paper of that size, in inches.
func (b *Browser) Print(name string, width, height float64) {
	b.t.Helper()
	file := filepath.Join(b.shots, name+".pdf")
	b.Do(fmt.Sprintf("print %g %g %s", width, height, file))
	if pdf, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(pdf, []byte("%PDF-")) || len(pdf) < 10 {
		b.t.Errorf("%s: it prints %d bytes that are no PDF: %v", name, len(pdf), err)
	}
}

// Fits wants a page that is no wider than the window. A phone's innerWidth grows with what does not fit, clientWidth does not.
func (b *Browser) Fits(what string) {
	b.t.Helper()
	if over := b.Do("eval document.documentElement.scrollWidth - document.documentElement.clientWidth"); over != "0" {
		b.t.Errorf("%s: the page is %s pixels wider than the window", what, over)
	}
}

// Axe wants no finding of axe-core, about WCAG 2.2 AA or best practice.
func (b *Browser) Axe(what string) {
	b.t.Helper()
	var found struct {
		Passes   int
		Findings []string
	}
	b.into("axe "+b.axe, &found)
	for _, finding := range found.Findings {
		b.t.Errorf("%s: axe finds %s", what, finding)
	}
	if found.Passes < 10 {
		b.t.Errorf("%s: %d rules of axe pass", what, found.Passes)
	}
}

// Quiet wants no complaint of the console or the Content-Security-Policy since the last time.
func (b *Browser) Quiet(what string) {
	b.t.Helper()
	var complaints []string
	b.into("complaints", &complaints)
	for _, complaint := range complaints {
		b.t.Errorf("%s: the browser complains of %s", what, complaint)
	}
}

// Asked are the addresses that the browser asked for since the last time.
func (b *Browser) Asked() (all []string) {
	b.t.Helper()
	b.into("asked", &all)
	return all
}

func (b *Browser) into(command string, value any) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.Do(command)), value); err != nil {
		b.t.Fatal(err)
	}
}
