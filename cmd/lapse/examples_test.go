package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lapse/internal/config"
	"lapse/internal/pgtest"
)

const (
	exampleSchema   = "../../examples/schema.sql"
	examplePolicies = "../../examples/policies.yaml"
)

// dueLine is a line of the comment in examples/schema.sql that says how many rows are due under which policy.
var dueLine = regexp.MustCompile(`(?m)^-- +([0-9]+)  ([a-z]+)$`)

// dueCounts are the counts that examples/schema.sql has in its comment.
func dueCounts(t *testing.T) map[string]int64 {
	t.Helper()
	text, err := os.ReadFile(exampleSchema)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, line := range dueLine.FindAllStringSubmatch(string(text), -1) {
		if counts[line[2]], err = strconv.ParseInt(line[1], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

//lapse:long
func TestTheExamplesAreDueAsTheirCommentSays(t *testing.T) {
	t.Parallel()
	want := dueCounts(t)
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
		schema, err := os.ReadFile(exampleSchema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Connect(t).PgConn().Exec(t.Context(), string(schema)).ReadAll(); err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, db, db.URL)
		d.env["LAPSE_SUPERUSER"] = "allow"
		if code, out, log := d.lapse("apply", "-f", examplePolicies, "--yes"); code != exitDone {
			t.Fatalf("lapse apply: exit code %d\n%s%s", code, out, log)
		}
		code, out, log := d.lapse("plan", "--json")
		if code != exitDone {
			t.Fatalf("lapse plan: exit code %d\n%s%s", code, out, log)
		}
		for policy, due := range planned(t, out) {
			if expected, there := want[policy]; !there || due != expected {
				t.Errorf("%d rows are due under %s, and the comment says %d", due, policy, expected)
			}
		}
		if n := len(planned(t, out)); n != len(want) || n < 2 {
			t.Errorf("the plan has %d policies, the comment %d", n, len(want))
		}
		if db.Major != pgtest.Newest(t) {
			return
		}
		for policy := range want { // of every kind
			code, out, log := d.lapse("policy", "show", policy, "--sql", "--verbose")
			if code != exitDone || strings.Count(out, ", as this lapse makes it:\n") != 4 {
				t.Errorf("lapse policy show %s --sql: exit code %d\n%s%s", policy, code, out, log)
			}
		}
		for _, day := range oddDays {
			at := day + "T12:34:56Z"
			db.Exec(t, rowsAt(t, string(schema), at))
			code, out, log := d.lapse("plan", "--json", "--at", at)
			if code != exitDone {
				t.Fatalf("lapse plan: exit code %d\n%s%s", code, out, log)
			}
			if got := planned(t, out); !maps.Equal(got, want) {
				t.Errorf("on %s, due are %v, and the comment says %v", day, got, want)
			}
		}
	})
}

// oddDays are days on which a month before or after is not what one might think.
var oddDays = []string{"2027-02-28", "2027-03-31", "2028-02-29"}

// insertion is a statement of examples/schema.sql that makes rows.
var insertion = regexp.MustCompile(`(?ms)^insert into .*?;(?: *--[^\n]*)?$`)

// rowsAt is a script that makes the rows of the examples again, as they would be if it ran at that time.
func rowsAt(t *testing.T, schema, at string) string {
	t.Helper()
	head, _, found := strings.Cut(schema, "-- column + after:")
	_, settings, more := strings.Cut(head, "set role")
	tables := regexp.MustCompile(`(?m)^create table ([a-z_]+) \(`).FindAllStringSubmatch(schema, -1)
	inserts := insertion.FindAllString(schema, -1)
	if !found || !more || len(tables) < 10 || len(inserts) < len(tables) {
		t.Fatalf("%d tables and %d insertions were found", len(tables), len(inserts))
	}
	script := "set role" + settings
	for _, table := range tables {
		script += "truncate " + table[1] + " restart identity cascade;\n"
	}
	return script + strings.ReplaceAll(strings.Join(inserts, "\n"), "now()", "timestamptz '"+at+"'")
}

// planned reads what `lapse plan --json` counted.
func planned(t *testing.T, out string) map[string]int64 {
	t.Helper()
	var surveys []struct {
		Policy string `json:"policy"`
		Due    int64  `json:"due"`
	}
	if err := resultIn(out, &surveys); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	counts := map[string]int64{}
	for _, s := range surveys {
		counts[s.Policy] = s.Due
	}
	return counts
}

func TestTheExampleSettingsCanBeRead(t *testing.T) {
	t.Parallel()
	s, err := config.Load(filepath.Join("..", "..", "examples", "lapse.yaml"), config.Overrides{}, func(string) (string, bool) { return "", false })
	if err != nil || s.Slot == "" {
		t.Errorf("got %+v, %v", s, err)
	}
}
