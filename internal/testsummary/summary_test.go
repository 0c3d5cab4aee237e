package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// module is a module with every kind of end that a test can come to.
var module = map[string]string{
	"go.mod": "module example\n\ngo 1.26\n",
	"good/good_test.go": `package good
import ("fmt"; "testing")
func TestMain(m *testing.M) { fmt.Print("\nlapse-test-server: PostgreSQL 18.6\n"); m.Run() }
func TestPasses(t *testing.T) { t.Log("nobody reads this") }
func TestHasSubtests(t *testing.T) {
	fmt.Print("\nlapse-test-server: PostgreSQL 14.24\n\nlapse-test-server: Kafka 4.3.1\n")
	t.Run("pg14", func(t *testing.T) {})
	t.Run("pg15", func(t *testing.T) { t.Skip("PostgreSQL 15 is not installed: run make servers") })
}
`,
	"bad/bad_test.go": `package bad
import "testing"
func TestFails(t *testing.T) {
	t.Run("one", func(t *testing.T) { t.Log("before"); t.Log("time=1 level=INFO\nFAIL: testdata/a.txtar:3: no match"); t.Fatal("the reason") })
	t.Run("two", func(t *testing.T) {})
}
func TestFailsItself(t *testing.T) {
	t.Run("one", func(t *testing.T) {})
	t.Error("its own reason")
}
`,
	"panics/panics_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { panic("the panic") }
`,
	"main/main_test.go": `package main
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { m.Run(); fmt.Println("the server did not stop"); os.Exit(1) }
func TestPasses(t *testing.T) {}
`,
	"build/build_test.go": "package build\n\nvar x int = \"the type\"\n",
	"empty/empty.go":      "package empty\n",
	"hangs/hangs_test.go": `package hangs
import "testing"
func TestHangs(t *testing.T) { t.Log("so far"); select {} }
`,
}

//lapse:long
func TestTheSummaryCountsEveryEndOfATestOnce(t *testing.T) {
	t.Parallel()
	out, code := summaryOf(t, module, "./...")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	// Passed: good 2, bad 2, main 1. Failed: bad 2, a panic, a TestMain, a build, a test that hangs.
	if last := lines[len(lines)-1]; last != "5 passed, 6 failed, 1 skipped" {
		t.Errorf("the last line is %q", last)
	}
	for _, want := range []string{
		"servers: PostgreSQL 14.24, 18.6; Kafka 4.3.1",
		"  example/good TestHasSubtests/pg15: PostgreSQL 15 is not installed: run make servers",
		"the reason", "its own reason", "the panic", "the server did not stop", "cannot use \"the type\"", "test timed out",
		"  example/bad TestFails/one\n    before\n    a.txtar:3: no match\n    the reason\n", "TestFailsItself\n    its own reason\n", "  example/build\n", "  example/main\n", "  example/hangs TestHangs\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, unwanted := range []string{"nobody reads this", "=== RUN", "example/empty"} {
		if strings.Contains(out, unwanted) {
			t.Errorf("%q is there", unwanted)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestASuiteThatPassesExitsWithZero(t *testing.T) {
	t.Parallel()
	out, code := summaryOf(t, module, "./good", "./empty")
	if code != 0 || !strings.HasSuffix(out, "\n2 passed, 0 failed, 1 skipped\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestNoTestAtAllIsAFailure(t *testing.T) {
	t.Parallel()
	if out, code := summaryOf(t, module, "./empty"); code != 1 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// summaryOf runs the module's tests and returns their summary.
func summaryOf(t *testing.T, module map[string]string, packages ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-timeout=5s"}, packages...)...)
	cmd.Dir = dir
	stdout, err := cmd.Output()
	if err != nil && len(stdout) == 0 {
		t.Fatal(err)
	}
	var out strings.Builder
	code, err := summarize(strings.NewReader(string(stdout)), &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), code
}

// Somebody waits for the tests: what has ended is shown while the others run.
func TestAPackageIsShownWhenItEnds(t *testing.T) {
	t.Parallel()
	in, events := io.Pipe()
	out := &shown{lines: make(chan string, 10)}
	code := make(chan int, 1)
	go func() {
		c, _ := summarize(in, out)
		code <- c
	}()
	for _, event := range []string{
		`{"Action":"run","Package":"a","Test":"TestA"}`,
		`{"Action":"pass","Package":"a","Test":"TestA"}`,
		`{"Action":"pass","Package":"a","Elapsed":1}`,
		`go: what is no event is shown as it is`,
	} {
		fmt.Fprintln(events, event)
	}
	if got := <-out.lines; got != "ok    a                                   1.0 s  1 passed, 0 failed, 0 skipped\n" {
		t.Errorf("shown is %q", got)
	}
	if got := <-out.lines; got != "go: what is no event is shown as it is\n" {
		t.Errorf("shown is %q", got)
	}
	_ = events.Close()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
}

// shown hands over what is written.
type shown struct{ lines chan string }

func (s *shown) Write(p []byte) (int, error) {
	s.lines <- string(p)
	return len(p), nil
}

func TestOutputThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if code, err := summarize(iotest.ErrReader(broken), io.Discard); code != 1 || !errors.Is(err, broken) {
		t.Errorf("exit code %d, %v", code, err)
	}
}
