package main

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// Right after `lapse init` the login lapse has no rights on the tables. That is no mistake of the file.
func TestAPlanTellsWhatTheLoginLacksFromMistakesOfTheFile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	db.Exec(t, "create table public.t (id int primary key, at timestamptz)", "create index on public.t (at, id)", "alter table public.t owner to "+db.NewRole(t, "app"))
	m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\nsink: dir:sink\n", db.As("lapse")))
	m.lapse("init", "--database", db.URL, "--keys", "keys")
	m.write("policies.yaml", "policies:\n  - { name: p, table: public.t, expire: { column: at, after: 30 days } }\n")
	code, out := m.answers("plan", "-f", "policies.yaml")
	if code != exitPerson || strings.Contains(out, "mistakes") || !strings.Contains(out, mayNotApply) || !strings.Contains(out, `grant select on public.t to "lapse"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	db.Exec(t, "grant select on public.t to lapse")
	if code, out = m.answers("plan", "-f", "policies.yaml"); code != exitDone || !strings.Contains(out, mayNotApply) || !strings.Contains(out, "0 rows at ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	m.lapse("apply", "--database", db.URL, "--yes", "-f", "policies.yaml")
	if code, out = m.answers("plan", "-f", "policies.yaml"); code != exitDone || strings.Contains(out, mayNotApply) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	// A superuser's table is one that a superuser's apply publishes; a partition of another owner is nobody's to apply.
	db.Exec(t, "create table public.s (id int primary key, at timestamptz)", "create index on public.s (at, id)", "grant select on public.s to lapse",
		"create table public.r (id int, at timestamptz, primary key (id, at)) partition by range (at)", "create table public.r1 partition of public.r default",
		"create index on public.r (at, id)", "alter table public.r owner to "+db.Name+"_app", "alter table public.r1 owner to "+db.NewRole(t, "other"))
	m.write("super.yaml", "policies:\n  - { name: s, table: public.s, expire: { column: at, after: 30 days } }\n")
	if code, out = m.answers("plan", "-f", "super.yaml", "-f", "policies.yaml"); code != exitDone || !strings.Contains(out, mayNotApply) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	m.write("parts.yaml", "policies:\n  - { name: r, table: public.r, expire: { column: at, after: 30 days } }\n")
	if code, out = m.answers("plan", "-f", "parts.yaml", "-f", "policies.yaml", "--database", db.URL); code != exitInvalid || strings.Contains(out, mayNotApply) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
