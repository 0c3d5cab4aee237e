package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// stopBound is how long lapse run may take to end on a loaded machine; the statement that it interrupts would take a minute.
const stopBound = 30 * time.Second

// A batch that cannot end when it is asked to is rolled back.
//
//lapse:long
func TestRunEndsWithinTenSecondsOfASignalThoughABatchHangs(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		m := newMachine(t, "audit: \"off\"\nlimits: { batch_time: 2 seconds, workers: 1 }\n")
		m.env = append(m.env, "LAPSE_DATABASE_URL="+db.URL)
		db.Exec(t, "create table public.s (id bigint primary key, at timestamptz); create index on public.s (at, id)",
			"insert into public.s select n, now() - interval '9 days' from generate_series(1, 20) n",
			"create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return old; end $$",
			"create trigger slow before delete on public.s for each row execute function public.slow()")
		m.lapse("init")
		m.lapse("apply", "--yes", "-f", m.write("p.yaml",
			"policies: [{ name: p, table: public.s, expire: { column: at, after: 1 day }, state: armed, triggers: trusted, pace: unlimited }]"))
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			d := m.start("run")
			conn := db.Connect(t)
			ctx, cancel := patience(t)
			defer cancel()
			if err := untilTrue(ctx, conn, "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := d.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code := d.ended(); code != exitDone || time.Since(began) > stopBound {
				t.Errorf("%v: lapse run ended with %d after %v", signal, code, time.Since(began))
			}
			d.ends("nothing was deleted\nstopped by a signal\n")
			var left string
			if err := conn.QueryRow(ctx, `select (select count(*) from public.s) || ' rows, ' || (select count(*) from lapse.shard where holder is not null) || ' leases, ' || (select count(*) from lapse.worker) || ' reports, ' || r.rests_because from lapse.run r`).Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left != "20 rows, 0 leases, 0 reports, stop request" {
				t.Errorf("%v: left: %s", signal, left)
			}
		}

		// What it did until then is in a table, and in JSON for a program.
		for i, args := range [][]string{{"run"}, {"run", "--json"}} {
			db.Exec(t, "drop trigger if exists slow on public.s", "insert into public.s select n, now() - interval '9 days' from generate_series(1, 20) n on conflict do nothing",
				"update lapse.looked set at = at - interval '1 hour'", "update lapse.run set started_at = started_at - interval '2 hours'")
			d := m.start(args...)
			conn := db.Connect(t)
			ctx, cancel := patience(t)
			defer cancel()
			if err := untilTrue(ctx, conn, "select not exists (select from public.s) and not exists (select from lapse.run where outcome is null)"); err != nil {
				t.Fatal(err)
			}
			if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := d.ended(); code != exitDone {
				t.Errorf("lapse %s ended with %d", strings.Join(args, " "), code)
			}
			d.ends([]string{
				"\np       public.s  20       0         finished\nstopped by a signal\n",
				"\n  \"errors\": []\n}\n",
			}[i])
		}
	})
}

// ends checks the last words of a process that has ended.
func (d *daemon) ends(with string) {
	d.m.t.Helper()
	if text, err := os.ReadFile(d.log); err != nil || !strings.HasSuffix(string(text), with) {
		d.m.t.Errorf("it did not end with %q: %v", with, err)
	}
}

func TestStatusWatchesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	m := newMachine(t, "audit: \"off\"\n")
	m.env = append(m.env, "LAPSE_DATABASE_URL="+db.URL)
	m.lapse("init")
	for _, c := range []struct {
		args []string
		says string
	}{{[]string{"status", "--watch"}, "\n\naudit: off"}, {[]string{"status", "--watch", "--json"}, "}\n{"}} {
		d := m.start(c.args...)
		d.wrote(c.says)
		if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := d.ended(); code != exitDone {
			t.Errorf("lapse %s ended with %d", strings.Join(c.args, " "), code)
		}
	}
	if text := fmt.Sprint(m.lapse("status")); strings.Contains(text, clearScreen) {
		t.Error("the screen is cleared if there is none")
	}
}
