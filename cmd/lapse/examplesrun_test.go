package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// exampleTables are the tables of examples/schema.sql, by the policy that examples/policies.yaml has for them.
const exampleTables = `
	select c.relname
	  from pg_class c
	 where c.relnamespace = 'example'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'upload_expiry'`

func TestEveryTableOfTheExamplesEndsWithTheRowsThatItsCommentLeaves(t *testing.T) {
	t.Parallel()
	due := dueCounts(t)
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		schema, err := os.ReadFile(exampleSchema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Connect(t).PgConn().Exec(t.Context(), string(schema)).ReadAll(); err != nil {
			t.Fatal(err)
		}
		before := exampleCounts(t, db)
		if len(before) != len(due) {
			t.Fatalf("there are %d tables and %d policies", len(before), len(due))
		}
		d := newDesk(t, db, db.URL)
		d.env["LAPSE_SUPERUSER"], d.env["LAPSE_CONFIG"] = "allow", filepath.Join(t.TempDir(), "lapse.yaml")
		if err := os.WriteFile(d.env["LAPSE_CONFIG"], []byte("audit: off\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		do := func(args ...string) string {
			t.Helper()
			code, out, log := d.lapse(args...)
			if code != exitDone {
				t.Fatalf("lapse %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, log)
			}
			return out
		}
		do("init")
		do("apply", "-f", examplePolicies, "--yes")
		do(append([]string{"policy", "arm"}, slices.Sorted(maps.Keys(due))...)...)
		if got := deletedByOnce(t, do("run", "--once", "--json")); !maps.Equal(got, due) {
			t.Errorf("lapse run says that it deleted %v, and due were %v", got, due)
		}
		after := exampleCounts(t, db)
		for table := range before {
			before[table] -= due[table]
		}
		if !maps.Equal(after, before) {
			t.Errorf("the tables have %v, want %v", after, before)
		}
		ledger := countsOf(t, db, `
			select jsonb_object_agg(l.policy, l.deleted)
			  from (select b.policy, sum(r.deleted) as deleted from lapse.batch b join lapse.batch_result r using (batch) group by b.policy) l`)
		if !maps.Equal(ledger, due) {
			t.Errorf("the ledger has %v, and due were %v", ledger, due)
		}
		for policy, deleted := range deletedByOnce(t, do("run", "--once", "--json")) {
			if deleted != 0 {
				t.Errorf("a second run deleted %d rows under %s", deleted, policy)
			}
		}
		if got := exampleCounts(t, db); !maps.Equal(got, after) {
			t.Errorf("after a second run the tables have %v, want %v", got, after)
		}
	})
}

// deletedByOnce reads what `lapse run --once --json` deleted, by policy.
func deletedByOnce(t *testing.T, out string) map[string]int64 {
	t.Helper()
	var summary struct {
		Policies []struct {
			Policy  string
			Deleted int64
		}
	}
	if err := resultIn(out, &summary); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	counts := map[string]int64{}
	for _, p := range summary.Policies {
		counts[p.Policy] = p.Deleted
	}
	return counts
}

func exampleCounts(t *testing.T, db *pgtest.DB) map[string]int64 {
	t.Helper()
	return countsOf(t, db, fmt.Sprintf(`
		select jsonb_object_agg(e.relname, (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from example.%%I', e.relname), true, true, '')))[1]::text::int)
		  from (%s) e`, exampleTables))
}

// countsOf reads one JSON object of counts.
func countsOf(t *testing.T, db *pgtest.DB, query string) (counts map[string]int64) {
	t.Helper()
	if err := db.Connect(t).QueryRow(t.Context(), query).Scan(&counts); err != nil {
		t.Fatal(err)
	}
	return counts
}
