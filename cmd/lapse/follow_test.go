package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), rows(20_000), 10, 10)
	d := s.m.serve()
	d.wrote("audit streaming")
	// A lock that the open batch waits for keeps the first signal's orderly end from ending.
	conn := s.db.Connect(t)
	if _, err := conn.Exec(t.Context(), `begin; lock table lapse.shard in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.wrote(`"msg":"stopping"`)
	began := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Skip("it had nothing to wait for")
	}
	select {
	case err := <-d.done:
		d.done <- err
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	case <-time.After(10 * time.Second):
		t.Error("the second signal did not end it")
	}
}
