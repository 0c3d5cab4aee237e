package main

import (
	"fmt"
	"testing"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// Without an audit an executor's own file says that a copy was restored. Each command says so, and a person answers with the command that
// answers with an audit: also from where the file is not.
func TestWithTheAuditOffARestoredCopyAsksUntilAPersonHasAnswered(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		yaml := fmt.Sprintf("database: %q\nkeys: keys\naudit: off\nstate: state\n", db.URL)
		m := newMachine(t, yaml)
		db.Exec(t, "create table public.s (id bigint generated always as identity primary key, at timestamptz not null)", "create index on public.s (at, id)")
		due := func() {
			db.Exec(t, "insert into public.s (at) select now() - interval '40 days' from generate_series(1, 9)")
		}
		left := func() (n int) {
			if err := db.Connect(t).QueryRow(ctx, "select count(*) from public.s").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		m.lapse("init", "--keys", "keys")
		m.lapse("apply", "--yes", "-f", m.write("policies.yaml", "policies:\n  - name: p\n    table: public.s\n    expire: { column: at, after: 30 days }\n    every: 100ms\n    state: armed\n"))
		due()
		m.lapse("run", "--once")
		due()
		old := db.Snapshot(t, pgserver.Backup)
		m.lapse("run", "--once")
		if n := left(); n != 0 {
			t.Fatalf("%d rows are left", n)
		}
		db.Restore(t, old)

		says(t, m.exits(1, "run", "--once"), "this database is older than the one that was deleted from last", "lapse history accept --reason TEXT")
		says(t, m.exits(3, "history"), "bent: nobody has accepted this database as it is: this database is older", "next: if this database is the one to go on with: lapse history accept")
		says(t, m.exits(0, "policy", "list"), "nothing is deleted: this database is older")
		says(t, m.exits(0, "status"), "nothing is deleted: this database is older")

		other := newMachine(t, yaml)
		says(t, other.exits(0, "history"), "straight: ") // it knows nothing
		served := m.serve()
		err := eventually(ctx, func() (bool, error) {
			code, _ := other.answers("history")
			return code == exitPerson, served.alive()
		})
		if err != nil {
			t.Fatalf("wait until the executor has said it: %v", err)
		}
		if n := left(); n != 9 {
			t.Fatalf("%d of 9 rows are left", n)
		}
		says(t, other.exits(0, "history", "accept", "--yes", "--reason", "restored last night's backup"), "this database is older", "accepted: history 2")
		if err := eventually(ctx, func() (bool, error) { return left() == 0, served.alive() }); err != nil {
			t.Fatalf("wait until the executor goes on: %v", err)
		}
		says(t, m.exits(0, "history"), "straight: ")
		says(t, other.exits(0, "history", "accept", "--yes", "--reason", "again"), "nothing to accept")
		served.stop()
		due()
		m.lapse("run", "--once")
		if n := left(); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}
