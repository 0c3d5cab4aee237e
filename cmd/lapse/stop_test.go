package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// fastStop is how long PostgreSQL may take to stop while an auditor is connected: long enough for an overloaded machine, and shorter than a
// server waits for an auditor that does not answer: 40 s.
const fastStop = 25 * time.Second

// stopFast is pg_ctl stop -m fast.
func (s *shop) stopFast(what string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	if err := s.db.Server.Stop(ctx, pgserver.Fast); err != nil {
		s.t.Fatalf("%s: PostgreSQL does not stop: %v", what, err)
	}
	took := time.Since(began)
	s.t.Logf("%s: PostgreSQL stopped in %v", what, took.Round(time.Millisecond))
	if took > fastStop {
		s.t.Errorf("%s: stopping PostgreSQL took %v, may take %v", what, took, fastStop)
	}
}

func (s *shop) startAgain() {
	s.t.Helper()
	if err := s.db.Server.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// userDeletes lets the application delete rows from first to last, none of them due.
func (s *shop) userDeletes(first, last int) {
	s.t.Helper()
	s.db.Exec(s.t, fmt.Sprintf(`set role %s; delete from public.sessions where id between %d and %d`, s.db.Name+"_app", s.due+first, s.due+last))
}

// once fails the test unless rows up to due have one system event each, and the user's first n one user event each.
func (s *shop) once(n int) {
	s.t.Helper()
	found := s.read()
	for cause, last := range map[string][2]int{"system": {1, s.due}, "user": {s.due + 1, s.due + n}} {
		for id := last[0]; id <= last[1]; id++ {
			if times := found[cause][id]; times != 1 {
				s.t.Errorf("row %d has %d %s events, want one", id, times, cause)
			}
		}
		if len(found[cause]) != last[1]-last[0]+1 {
			s.t.Errorf("%d rows have %s events, want %d", len(found[cause]), cause, last[1]-last[0]+1)
		}
	}
}

//lapse:long
func TestPostgreSQLStopsFastWhileTheAuditorIsConnected(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		broker := kafkatest.Solo(t, kafkaserver.Options{})
		s := newShop(t, db, broker, scaled(20_000), 1000, 1000)
		d := s.serves(ctx)

		s.userDeletes(1, 10)
		s.stopFast("Kafka up")
		s.startAgain()
		d.ready(http.StatusOK)

		s.userDeletes(11, 20)
		if err := broker.Kill(); err != nil {
			t.Fatal(err)
		}
		s.userDeletes(21, 30)
		s.stopFast("Kafka down")
		s.startAgain()
		s.userDeletes(31, 40)
		if err := broker.Start(ctx); err != nil {
			t.Fatal(err)
		}
		d.ready(http.StatusOK)
		s.confirmed(ctx, db.Connect(t), d)
		d.stop()
		s.once(40)
	})
}

func TestAnIdleAuditorLetsPostgreSQLStop(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 10, 10, 1000)
		d := s.serves(ctx)
		// Log that is nobody's event: it must be confirmed too before the server can go.
		db.Exec(t, `create table public.unpublished as select n from generate_series(1, 10000) n`)
		s.stopFast("idle")
		d.ready(http.StatusServiceUnavailable)
		s.startAgain()
		d.ready(http.StatusOK)
		d.stop()
	})
}

//lapse:long
func TestACrashOfPostgreSQLLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), scaled(20_000), 1000, 250)
		d := s.m.serve()
		for crash := 1; crash <= 3; crash++ {
			conn := db.Connect(t)
			err := eventually(ctx, func() (passed bool, err error) {
				err = conn.QueryRow(ctx, `select coalesce(sum(deleted), 0) >= $1 from lapse.batch_result`, crash*s.due/4).Scan(&passed)
				return passed, err
			})
			if err != nil {
				t.Fatal(err)
			}
			s.userDeletes(10*crash-9, 10*crash)
			if err := db.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			s.startAgain()
		}
		d.ready(http.StatusOK)
		s.settled(ctx, d)
		d.stop()
		s.once(30)
	}, pgtest.Settings(map[string]string{"fsync": "on"}))
}
