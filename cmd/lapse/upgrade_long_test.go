//go:build long

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// nextProgram is this program with a made-up version 2 of the catalog: a table and a column are added, and a function that each batch calls is
// another.
func nextProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	read := func(name string) (path, text string) {
		path, err := filepath.Abs("../../schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, string(all)
	}
	number, program := read("migrations.go")
	_, batches := read("migrations/0001_11_batch.sql")
	record := regexp.MustCompile(`(?s)create function lapse\.record\(.*?\$lapse\$;`).FindString(batches)
	later := strings.Replace(strings.Replace(record, "create function", "create or replace function", 1), "\nbegin\n", "\nbegin\n  -- of version 2\n", 1)
	next := strings.Replace(program, "\nconst Version = 1\n", "\nconst Version = 2\n", 1)
	if next == program || !strings.Contains(later, "of version 2") {
		t.Fatal("this is not version 1 of the catalog any more: test the upgrade from it")
	}
	replaced := map[string]string{}
	for path, text := range map[string]string{
		number: next,
		filepath.Join(filepath.Dir(number), "migrations/0002_01_next.sql"): "create table lapse.next (n int);\n" +
			"alter table lapse.batch add column next int;\n" + later + "\n",
	} {
		replaced[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replaced[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "lapse")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// An installation that has been in use gets the next version as docs/deployment.md says, under a serve of the former one: init, then a restart.
// The same log goes on, and what was held, armed and in quarantine still is.
func TestAnInstallationInUseIsUpgraded(t *testing.T) {
	t.Parallel()
	bin := nextProgram(t)
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, `create table public.sessions (id bigint primary key, last_seen timestamptz not null)`,
			`create table public.logins (session bigint references public.sessions)`, `create index on public.logins (session)`)
		due := func(from, to string) {
			db.Exec(t, `insert into public.sessions select n, now() - interval '40 days' from generate_series(`+from+`, `+to+`) n`)
		}
		due("1", "30")
		db.Exec(t, `insert into public.logins values (7)`)
		former := newMachine(t, "database: \""+db.URL+"\"\nkeys: keys\nsink: dir:sink\n")
		next := *former
		next.bin = bin
		conn := db.Connect(t)
		// deletes waits until a serve has deleted all but what refers and what is held.
		deletes := func(serve *daemon) {
			t.Helper()
			ctx, cancel := patience(t)
			defer cancel()
			var left string
			if err := eventually(ctx, func() (bool, error) {
				err := conn.QueryRow(ctx, `select string_agg(id::text, ' ' order by id) from public.sessions`).Scan(&left)
				return left == "7 9", errors.Join(err, serve.alive())
			}); err != nil {
				log, _ := os.ReadFile(serve.log)
				t.Fatalf("the sessions left are %q: %v\n%s", left, err, log)
			}
		}
		stays := func(m *machine) {
			t.Helper()
			says(t, m.exits(exitPerson, "quarantine", "list"), "sessions-30d", "logins")
			says(t, m.lapse("hold", "list"), "2026-14")
			m.lapse("verify")
		}

		former.lapse("init", "--keys", "keys")
		former.lapse("apply", "--yes", "--arm", "-f", former.write("policies.yaml", `
policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 30 days }
    every: 1 second
    state: armed
`))
		former.lapse("hold", "place", "--table", "public.sessions", "--keys", "9", "--matter", "2026-14", "--reason", "claim")
		serve := former.serve()
		deletes(serve)
		says(t, next.exits(exitFailed, "run", "--once"), "the catalog has version 1, this program needs 2: run lapse init")

		next.lapse("init", "--keys", "keys")
		due("31", "60") // the former program deletes nothing more, since a function has changed
		serve.stop()
		says(t, former.exits(exitFailed, "run", "--once"), "the catalog has version 2, this program knows 1: use a newer lapse")

		serve = next.serve()
		due("61", "90")
		deletes(serve)
		serve.stop()
		next.lapse("audit", "--once")
		stays(&next)
		if n := strings.Count(next.lapse("events", "--cause", "system", "--json"), "\n"); n != 88 {
			t.Errorf("%d events, want 88", n)
		}
		next.answers("report", "--from", "begin", "-o", "report.html")
		next.lapse("verify", "report.html")
	})
}
