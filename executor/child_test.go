package executor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// childURL makes the test binary an executor process that works on that database until nothing is due.
const childURL = "LAPSE_TEST_EXECUTOR_URL"

// childHolder names the process in leases.
const childHolder = "LAPSE_TEST_EXECUTOR_HOLDER"

// runChild is the process. It says "batch" after each batch and "over" at the end.
func runChild() int {
	config, err := pgx.ParseConfig(os.Getenv(childURL))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e, err := New(Config{
		Database: config, TagKey: testKey, Holder: os.Getenv(childHolder), Limits: Limits{TurnTime: time.Minute},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Progress: func(p Progress) { fmt.Println("batch", p.Deleted) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := e.Once(context.Background(), nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("over")
	return 0
}

// testKey signs the claims of every test.
var testKey = schemas.Key(bytes.Repeat([]byte("k"), schemas.MinKey))

// child is an executor in a process of its own.
type child struct {
	command *exec.Cmd
	lines   *bufio.Scanner
	mu      sync.Mutex
	errors  strings.Builder
}

// startChild starts an executor process. It is killed when the test ends, if it still lives.
func startChild(t *testing.T, url string, environment ...string) *child {
	t.Helper()
	c := &child{command: exec.Command(os.Args[0])}
	c.command.Env = append(append(os.Environ(), childURL+"="+url), environment...)
	c.command.Stderr = c
	out, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	t.Cleanup(func() { c.kill(t) })
	return c
}

// Write takes what the process logs.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors.Write(p)
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors.String()
}

// batches waits until the process has done n more batches. It returns false if the process ended before.
func (c *child) batches(n int) bool {
	for ; n > 0; n-- {
		if !c.lines.Scan() || c.lines.Text() == "over" {
			return false
		}
	}
	return true
}

// kill is kill -9.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.command.ProcessState != nil {
		return
	}
	_ = c.command.Process.Kill()
	_ = c.command.Wait()
	if t.Failed() {
		t.Log(c.log())
	}
}

// wait waits for the process to end by itself.
func (c *child) wait(t *testing.T) {
	t.Helper()
	for c.lines.Scan() {
	}
	if err := c.command.Wait(); err != nil {
		t.Fatalf("the executor process failed: %v\n%s", err, c.log())
	}
}
