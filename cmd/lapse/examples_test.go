package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

func TestTheExamplesAreDueAsTheirCommentSays(t *testing.T) {
	t.Parallel()
	want := dueCounts(t)
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
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
	})
}

// planned reads what `lapse plan --json` counted.
func planned(t *testing.T, out string) map[string]int64 {
	t.Helper()
	var surveys []struct {
		Policy string `json:"policy"`
		Due    int64  `json:"due"`
	}
	if err := json.Unmarshal([]byte(out), &surveys); err != nil {
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
