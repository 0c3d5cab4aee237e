package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"lapse/internal/pgtest"
)

func TestATableIsCutForATerminalAndNeverInItsNumbers(t *testing.T) {
	t.Parallel()
	const policy, name = "a-policy-with-a-long-name-2026-10", "schöma.a_table_with_a_long_name_2026_10"
	made := newTable("POLICY…", "ROWS", "TABLE…")
	made.row(policy, 1234567, name)
	made.row("p", 1, "with\na line break")
	for _, width := range []int{0, 1, 20, 40, 60, 80, 500} {
		var b strings.Builder
		if err := made.write(&b, width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		widest := 0
		for _, line := range lines {
			widest = max(widest, utf8.RuneCountInString(line))
		}
		if len(lines) != 3 || !strings.Contains(lines[1], "  1234567  ") {
			t.Errorf("width %d:\n%s", width, b.String())
		}
		if whole := strings.Contains(b.String(), policy+"  ") && strings.Contains(b.String(), "  "+name); whole != (width == 0 || width > 81) {
			t.Errorf("width %d: names are whole: %v\n%s", width, whole, b.String())
		}
		if least := 2*leastCut + 2*columnGap + len("1234567"); width > 0 && widest > max(width, least) {
			t.Errorf("width %d: a line has %d characters\n%s", width, widest, b.String())
		}
		if cut := lines[1]; width == 60 && (!strings.HasPrefix(cut, "a-poli") || !strings.HasSuffix(cut, "_10")) {
			t.Errorf("a name is not cut in its middle: %s", cut)
		}
	}
}

// tableLine is a line of a table: its first cell is a word. A sentence has no gap after its first word.
var tableLine = regexp.MustCompile(`^([A-Za-z0-9_-]+  +|    +)\S`)

// With policies of 20 characters on tables of 25, in every state that makes a line long, each table fits 80 columns.
func TestEveryTableFitsEightyColumns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, 18)
	m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.URL))
	db.Exec(t, "create schema shop")
	policies := "policies:\n"
	for _, p := range []struct{ name, says string }{
		{"plain", ""}, {"breaker", ", max_fraction: 0.5"}, {"limited", ", max_rows_per_run: 10, latitude: 1 year"}, {"resists", ""}, {"paused", ""}, {"clock", ""},
	} {
		name := fmt.Sprintf("%s-%s", p.name, strings.Repeat("p", 19-len(p.name)))
		table := fmt.Sprintf("shop.%s_%s", p.name, strings.Repeat("t", 19-len(p.name)))
		db.Exec(t, fmt.Sprintf(`create table %[1]s (id uuid primary key default gen_random_uuid(), at timestamptz); create index on %[1]s (at);
			insert into %[1]s (at) select now() - interval '40 days' - g * interval '1 minute' from generate_series(1, 50) g; analyze %[1]s`, table))
		policies += fmt.Sprintf("  - { name: %s, table: %s, expire: { column: at, after: 30 days }, every: 1 hour, state: armed%s }\n", name, table, p.says)
	}
	db.Exec(t, `create table shop.refers (id uuid references shop.resists_tttttttttttt); create index on shop.refers (id);
		insert into shop.refers select id from shop.resists_tttttttttttt limit 3`)
	m.lapse("init", "--keys", "keys")
	m.lapse("apply", "--yes", "-f", m.write("policies.yaml", policies))
	db.Exec(t, `select lapse.advance_arming(policy_id) from lapse.gate`, `select lapse.advance_arming(policy_id) from lapse.gate`)
	m.lapse("policy", "pause", "paused-ppppppppppppp", "--reason", strings.Repeat("because ", 20))
	m.lapse("hold", "place", "--table", "shop.plain_tttttttttttttt", "--where", "at is not null", "--matter", "2026-14-north", "--reason", "a claim")
	m.lapse("hold", "place", "--table", "shop.plain_tttttttttttttt", "--where", "id is not null", "--matter", "2026-15-north", "--reason", "a claim")
	m.lapse("hold", "release", "1", "--reason", "settled")
	db.Exec(t, `insert into lapse.run (run, policy_id, version, cutoff, started_at, outcome)
		select gen_random_uuid(), policy_id, version, now() + interval '1 hour', now() - interval '2 hours', 'done' from lapse.gate where name like 'clock%'`)
	for _, args := range [][]string{
		{"run", "--once"}, {"status"}, {"policy", "list"}, {"quarantine", "list"}, {"hold", "list"}, {"hold", "list", "--all"}, {"clock"}, {"history"}, {"pause", "--all"}, {"status"},
	} {
		_, out := m.answers(args...)
		t.Logf("lapse %s\n%s", strings.Join(args, " "), out)
		seen := 0
		for line := range strings.Lines(out) {
			if line = strings.TrimSuffix(line, "\n"); !tableLine.MatchString(line) {
				continue
			}
			seen++
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("lapse %s: a line has %d characters: %s", strings.Join(args, " "), n, line)
			}
		}
		if seen < 2 && args[0] != "pause" {
			t.Errorf("lapse %s prints no table:\n%s", strings.Join(args, " "), out)
		}
	}
}

// Names as long as PostgreSQL takes them, of characters that take two columns, one or none, fit as well, and what comes after them is aligned.
func TestATableOfWideCharactersIsAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()
	names := []string{strings.Repeat("表", 21), strings.Repeat("é", 31), strings.Repeat("e\u0301", 21), strings.Repeat("ｱ", 21), strings.Repeat("🦀", 15), "a"}
	for _, width := range []int{0, 20, 30, 79, 80, 500} {
		made := newTable("POLICY", "TABLE…", "STATE")
		for _, name := range names {
			made.row("p", name, "armed")
		}
		var b strings.Builder
		if err := made.write(&b, width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		at := strings.Index(lines[0], "STATE") // it has one byte a column
		for i, line := range lines[1:] {
			before, _, found := strings.Cut(line, "armed")
			if !found || columnsOf(before) != at {
				t.Errorf("width %d: %s is not aligned:\n%s", width, names[i], b.String())
			}
			if n := columnsOf(line); width >= 30 && n > width {
				t.Errorf("width %d: a line takes %d columns:\n%s", width, n, b.String())
			}
			if whole := strings.Contains(line, names[i]); names[i] != "a" && whole != (width == 0 || width >= 79) {
				t.Errorf("width %d: %s is whole: %v", width, names[i], whole)
			}
		}
	}
}
