package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

func TestEventsArePrintedAsTheyCome(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 0, 10, 1000)
	s.userDeletes(1, 1)
	s.m.lapse("audit", "--once")
	follow := s.m.start("events", "--follow", "--cause", "user")
	follow.wrote(`{"id":"1"}`)
	s.userDeletes(2, 3)
	s.m.lapse("audit", "--once")
	follow.wrote(`{"id":"2"}`)
	follow.wrote(`{"id":"3"}`)
	follow.stop()
	text, err := os.ReadFile(follow.log)
	if err != nil || strings.Count(string(text), " delete ") != 3 {
		t.Errorf("want three events, got %v\n%s", err, text)
	}
}

func TestToldToStopBeforeTheDatabaseIsThereIsNoFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "database: postgres://nobody@127.0.0.1:1/nothing\nkafka: { brokers: '127.0.0.1:1' }\nkeys: keys\n")
	for _, name := range []string{"tag", "log", "rows", "hash"} {
		m.env = append(m.env, "LAPSE_KEY_"+strings.ToUpper(name)+"="+strings.Repeat("ab", 32))
	}
	for _, command := range []string{"serve", "run", "audit"} {
		d := m.start(command)
		d.wrote("no connection to the database; trying again")
		d.stop()
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "stubborn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"waiting", errSignalled.Error()} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it wrote %q, want %q", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("it ended with %v, want exit code %d", err, exitFailed)
	}
}
