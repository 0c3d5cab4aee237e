package main

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// Several databases are a line each. One that cannot be read is named, and the others are shown all the same.
func TestStatusShowsSeveralDatabases(t *testing.T) {
	t.Parallel()
	newest := pgtest.Newest(t)
	first, second := pgtest.New(t, newest), pgtest.New(t, newest)
	settings := func(url string) string { return fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", url) }
	m := newMachine(t, settings(first.URL))
	a, b := m.write("a.yaml", settings(first.URL)), m.write("b.yaml", settings(second.URL))
	for i, db := range []*pgtest.DB{first, second} {
		config := []string{a, b}[i]
		db.Exec(t, "create table t (id int primary key, at timestamptz); create index on t (at)")
		m.lapse("init", "--keys", "keys", "--config", config)
		m.lapse("apply", "--yes", "--config", config, "-f", m.write("policies.yaml",
			"policies:\n  - { name: p, table: public.t, expire: { column: at, after: 30 days }, state: armed }\n"))
		db.Exec(t, "update lapse.gate set state = 'armed'")
	}
	second.Exec(t, "insert into lapse.breaker (policy_id, version, due, table_rows) select policy_id, version, 900, 1000 from lapse.gate")
	code, out := m.answers("status", "--config", a, "--config", b)
	lines := strings.Split(out, "\n")
	if code != exitPerson || len(lines) < 4 || !strings.HasPrefix(lines[0], "DATABASE") ||
		strings.Join(strings.Fields(lines[1])[:5], " ") != first.Name+" 1 of 1 0" || strings.Join(strings.Fields(lines[2])[:5], " ") != second.Name+" 1 of 1 1" ||
		!strings.Contains(out, second.Name+": p: breaker: 900 of about 1000 rows were due") || strings.Contains(out, first.Name+": p: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	gone := m.write("gone.yaml", settings("postgres://nobody@127.0.0.1:1/gone"))
	code, out = m.answers("status", "--config", gone, "--config", b)
	if code != exitFailed || !strings.Contains(out, "gone: connect to database \"gone\"") || !strings.Contains(out, "900 of about 1000") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	second.Exec(t, "delete from lapse.breaker", "update lapse.installation set audit_required = true, slot = 'gone_"+second.Name+"'")
	audited := m.write("audited.yaml", fmt.Sprintf("database: %q\nkeys: keys\nslot: gone_%s\nsink: dir:%s\n", second.URL, second.Name, m.dir))
	for _, args := range [][]string{{}, {"--config", a}} {
		code, out = m.answers(append([]string{"status", "--config", audited}, args...)...)
		if code != exitPerson || !strings.Contains(out, "slot gone_"+second.Name+" is not there: nothing is deleted: `lapse init --new-slot`") {
			t.Errorf("without a slot: exit code %d\n%s", code, out)
		}
	}
	for _, args := range [][]string{
		{"status", "--json", "--config", a, "--config", b},
		{"status", "--watch", "--config", a, "--config", b},
		{"status", "--database", first.URL, "--config", a, "--config", b},
		{"doctor", "--config", a, "--config", b},
	} {
		if code, out := m.answers(args...); code != exitInvalid {
			t.Errorf("lapse %s ends with %d\n%s", strings.Join(args, " "), code, out)
		}
	}
}
