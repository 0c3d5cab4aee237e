package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/executor"
	"lapse/executor/guard"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// stranger is an executor with another tag key. lapse itself has no part in it, so that no check of its own is in the way:
// it is what somebody with the executor's login can run.
type stranger struct {
	*executor.Executor
	stop func() error
}

func (s *shop) stranger(ctx context.Context) *stranger {
	s.t.Helper()
	database, err := pgx.ParseConfig(s.db.As("lapse_executor"))
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := executor.New(executor.Config{
		Database: database, TagKey: schemas.Key(bytes.Repeat([]byte{1}, schemas.MinKey)), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	s.t.Cleanup(cancel)
	return &stranger{Executor: e, stop: func() error {
		cancel()
		return <-ended
	}}
}

// An executor with another tag key deletes what is due, and nobody can tell its deletes from a forger's. Without the alarm
// all rows went as unverified, under an auditor that was healthy.
func TestAnExecutorWithAnotherTagKeyIsStoppedAndAfterAPersonsWordTheRightOneGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 4_000, 0, 10)
		audit := s.m.start("audit", "--http", "127.0.0.1:0", "--log-format", "json")
		audit.ready(http.StatusOK)
		stranger := s.stranger(ctx)

		conn := db.Connect(t)
		var refusal *guard.Refusal
		err := eventually(ctx, func() (bool, error) {
			if s.deleted(ctx, conn) == s.due {
				return false, errors.New("all that is due is gone")
			}
			return errors.As(stranger.Ready(), &refusal) && refusal.Reason == guard.Alarmed, audit.alive()
		})
		if err != nil {
			t.Fatalf("wait until the executor is stopped: %v (%v)", err, stranger.Ready())
		}
		wrong := s.stopped(ctx, conn, refusal)
		if err := stranger.stop(); err != nil {
			t.Error(err)
		}
		s.confirmed(ctx, conn, audit)
		if again := s.deleted(ctx, conn); again != wrong {
			t.Errorf("%d rows were gone when the executor said that it had stopped, and later %d", wrong, again)
		}
		audit.wrote("fits none of the tag keys")
		audit.ready(http.StatusOK) // it does its job
		if text := audit.metrics(ctx); !strings.Contains(text, "\nlapse_own_batches_unverified_total ") ||
			strings.Contains(text, "\nlapse_own_batches_unverified_total 0\n") {
			t.Error("lapse_own_batches_unverified_total counts nothing")
		}

		db.Exec(t, `insert into lapse.halt (halted, reason) values (false, 'the key is put right')`)
		right := s.m.start("run")
		s.settled(ctx, right)
		right.stop()
		audit.stop()
		found := s.read()
		if n := len(found["unverified"]); n != wrong {
			t.Errorf("%d rows have unverified events, and the wrong key deleted %d", n, wrong)
		}
		for id := 1; id <= s.due; id++ {
			if found["system"][id]+found["unverified"][id] != 1 {
				t.Errorf("row %d has %d system events and %d unverified ones, want one in all",
					id, found["system"][id], found["unverified"][id])
			}
		}
	})
}

// The audit goes on when the alarm was taken, and never raises it again. A server that loses commits in a crash must not
// lose this one.
func TestAnAlarmOutlivesACrashOfAServerThatCommitsLazily(t *testing.T) {
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		newShop(t, db, kafkatest.Broker(t), 10, 0, 10)
		config, err := pgx.ParseConfig(db.As("lapse_auditor"))
		if err != nil {
			t.Fatal(err)
		}
		session := audit.NewDatabase(config)
		defer session.Close()
		if err := session.Alarm(t.Context(), "a batch fits no key"); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var halted bool
		err = db.Connect(t).QueryRow(t.Context(), `select exists (select from lapse.halt where halted)`).Scan(&halted)
		if err != nil || !halted {
			t.Errorf("after the crash deletion is stopped: %v (%v)", halted, err)
		}
	}, pgtest.Settings(map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}))
}

// stopped finds where the executor was stopped, and returns how many rows it had deleted.
func (s *shop) stopped(ctx context.Context, conn *pgx.Conn, refusal *guard.Refusal) (rows int) {
	s.t.Helper()
	var named bool
	var batches int
	var alarm, after time.Duration
	err := conn.QueryRow(ctx, `
		select exists (select from lapse.batch b where strpos($1, b.batch::text) > 0), count(*), sum(r.deleted),
		       min(h.at) - min(r.finished_at), greatest(max(b.started_at) - min(h.at), '0')
		  from lapse.batch b
		  join lapse.batch_result r using (batch), lapse.halt h`, refusal.Detail).Scan(&named, &batches, &rows, &alarm, &after)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d batches deleted %d of %d rows; the alarm came %v after the first, and the last began %v after the alarm",
		batches, rows, s.due, alarm, after)
	if !named {
		s.t.Errorf("the executor does not name a batch: %v", refusal)
	}
	return rows
}

// deleted counts the rows that batches have deleted.
func (s *shop) deleted(ctx context.Context, conn *pgx.Conn) (rows int) {
	s.t.Helper()
	if err := conn.QueryRow(ctx, `select coalesce(sum(deleted), 0) from lapse.batch_result`).Scan(&rows); err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// metrics is what the process serves at /metrics.
func (d *daemon) metrics(ctx context.Context) string {
	d.m.t.Helper()
	return d.get(ctx, "/metrics")
}

// get is what the process serves at a path.
func (d *daemon) get(ctx context.Context, path string) string {
	d.m.t.Helper()
	address, err := d.address(ctx)
	if err != nil {
		d.m.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		d.m.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		d.m.t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		d.m.t.Fatal(err)
	}
	return string(text)
}
