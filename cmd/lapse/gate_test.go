package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// batchRuns opens a transaction that holds what a batch holds first.
func (u *inUse) batchRuns() *pgx.Conn {
	u.t.Helper()
	conn := u.db.Connect(u.t)
	if _, err := conn.Exec(u.t.Context(), `begin; lock table lapse.gate in row share mode; set local lock_timeout = '100ms'`); err != nil {
		u.t.Fatal(err)
	}
	return conn
}

// waitsForGate waits until a session of ours waits for the gates.
func (u *inUse) waitsForGate(d *daemon) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Minute)
	defer cancel()
	conn := u.db.Connect(u.t)
	err := eventually(ctx, func() (waits bool, err error) {
		err = conn.QueryRow(ctx, `
			select exists (select from pg_locks where not granted and relation = 'lapse.gate'::regclass
			                and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits)
		if err == nil {
			err = d.alive()
		}
		return waits, err
	})
	if err != nil {
		u.t.Fatalf("wait until the gates are waited for: %v", err)
	}
}

// A batch takes the gates and then its leaf. The other way round is a deadlock with it.
func TestApplyTakesTheGatesBeforeTheTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		u := newInUse(t, db)
		db.Exec(t, `alter publication lapse_deletes drop table public.sessions`)
		batch := u.batchRuns()
		apply := u.m.start("apply", "--yes", "-f", u.m.write("policies.yaml", entry("29 days", "    state: observing\n")))
		u.waitsForGate(apply)
		if _, err := batch.Exec(t.Context(), `lock table public.sessions in row exclusive mode; commit`); err != nil {
			t.Errorf("the batch, which has the gates: %v", err)
		}
		if code := apply.ended(); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		if got := u.state(); got != "2 observing" {
			t.Errorf("in force is %s", got)
		}
		var published bool
		err := db.Connect(t).QueryRow(t.Context(), `select exists (select from pg_publication_tables where pubname = 'lapse_deletes' and tablename = 'sessions')`).Scan(&published)
		if err != nil || !published {
			t.Errorf("the table is published: %v, %v", published, err)
		}
	})
}

func TestAPauseReturnsWhenNoBatchRuns(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"of one":           {"policy", "pause", "sessions"},
		"of all":           {"pause", "--all", "--reason", "an incident"},
		"of all once more": {"pause", "--all"},
		"by the file":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newInUse(t, pgtest.New(t, pgtest.Newest(t)))
			if name == "of all once more" {
				u.m.lapse("pause", "--all")
			}
			if args == nil {
				args = []string{"apply", "--yes", "-f", u.m.write("paused.yaml", entry("30 days", "    state: paused\n"))}
			}
			batch := u.batchRuns()
			pause := u.m.start(args...)
			u.waitsForGate(pause)
			if _, err := batch.Exec(t.Context(), `commit`); err != nil {
				t.Fatal(err)
			}
			if code := pause.ended(); code != exitDone {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A table that is published is not locked, whatever changes.
func TestAVersionByWhichMoreFallsDueLocksNoPublishedTable(t *testing.T) {
	t.Parallel()
	u := newInUse(t, pgtest.New(t, pgtest.Newest(t)), `insert into public.sessions values (-2, now() - interval '20 days')`)
	idle := u.db.Connect(t)
	if _, err := idle.Exec(t.Context(), `begin; insert into public.sessions values (-1, now())`); err != nil {
		t.Fatal(err)
	}
	stop := u.writes()
	text := u.apply(exitPerson, entry("10 days", "    state: armed\n"))
	if got := u.state(); got != "1 arming" || !strings.Contains(text, "1 row newly falls due (1 under version 2, 0 under version 1)") {
		t.Errorf("in force is %s, and it said\n%s", got, text)
	}
	for _, args := range [][]string{{"policy", "arm", "sessions"}, {"policy", "pause", "sessions"}, {"policy", "resume", "sessions"}, {"policy", "list"}} {
		u.runs(exitDone, args...)
	}
	stop()
}

// Counting gives up soon where the table is locked, and the version is written all the same.
func TestWhatCannotBeCountedIsSaid(t *testing.T) {
	t.Parallel()
	u := newInUse(t, pgtest.New(t, pgtest.Newest(t)))
	idle := u.db.Connect(t)
	if _, err := idle.Exec(t.Context(), `begin; lock table public.sessions in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	text := u.m.exits(exitPerson, "apply", "--yes", "-f", u.m.write("more.yaml", entry("10 days", "    state: armed\n")))
	if want := "more rows fall due, which were not counted (another session holds a lock on the table, or counting takes too long (SQLSTATE 55P03)): `lapse plan sessions` counts them"; !strings.Contains(text, want) {
		t.Errorf("it said\n%s", text)
	}
	if got := u.state(); got != "1 arming" {
		t.Errorf("in force is %s", got)
	}
}
