package main

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// A plan reads over a second session to be quicker. Where the login may have one session only, it goes on without.
func TestAPlanNeedsOneSessionOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.Solo(t, pgtest.Newest(t))
	m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.URL))
	m.lapse("init", "--keys", "keys")
	db.Exec(t, "create role app", "create table public.sessions (id bigint primary key, at timestamptz not null)", "create index on public.sessions (at)",
		"insert into public.sessions select n, now() - interval '40 days' from generate_series(1, 30) n", "alter table public.sessions owner to app")
	m.write("p.yaml", "policies:\n  - {name: p, table: public.sessions, expire: {column: at, after: 30 days}}\n")
	m.lapse("apply", "-f", "p.yaml", "--yes")
	db.Exec(t, "alter role lapse_executor connection limit 1")
	m.write("lapse.yaml", fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.As("lapse_executor")))
	if said := m.lapse("plan"); !strings.Contains(said, "30") {
		t.Errorf("lapse plan says:\n%s", said)
	}
}
