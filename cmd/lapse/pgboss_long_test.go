//go:build long

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"lapse/internal/pgtest"
)

// The tables of pg-boss lie in a schema of their own, have an enum in their policy's condition and a partition for each queue, and are made by its own
// migrations. New queues and jobs come while Lapse deletes.
func TestPgBossKeepsItsPolicies(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"package.json", "fill.js"} {
		text, err := os.ReadFile(filepath.Join("testdata/pgboss", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fetched(t, folder, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		const n = 400
		e := newEstate(t, db, "pgboss",
			estateTable{"pgboss.job", `'pgboss.job {"id":"' || id || '","name":"' || name || '"}'`, `completed_on < now() - interval '8 days'`},
			estateTable{"pgboss.archive", `'pgboss.archive {"id":"' || id || '","name":"' || name || '"}'`, `archived_on < now() - interval '31 days'`})
		e.runs("node", filepath.Join(folder, "fill.js"), e.db.As(e.app), strconv.Itoa(n))
		// A third of the completed jobs are old, a third archived and old, as time would make them.
		db.Exec(t, `update pgboss.job set completed_on = now() - interval '10 days' where state = 'completed' and ascii(id::text) % 3 = 0`,
			`with gone as (delete from pgboss.job where state = 'completed' and ascii(id::text) % 3 = 1 returning *)
			 insert into pgboss.archive select gone.*, now() - interval '40 days' from gone`)
		e.install()
		before, due := e.read(false), e.read(true)
		e.deletes(func() { e.runs("node", filepath.Join(folder, "fill.js"), e.db.As(e.app), strconv.Itoa(n)) })
		if system, _ := e.compare(before, due, func(string) bool { return false }); system != len(due) || system == 0 {
			t.Errorf("%d rows were the system's, want %d", system, len(due))
		}
	})
}
