package planner

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/survey"
	"lapse/schemas"
)

// Unlimited pace is warned of where the application would feel it: on a table that others write to.
func TestUnlimitedPaceIsWarnedOfOnATableInUse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, append(days("visits", "now()", 3), `create table idle (id int primary key, last_seen timestamptz not null)`)...)
		writer := w.db.ConnectAs(t, w.app)
		must(t, runSQL(writer, `insert into shop.idle select g, now() from generate_series(1, 100) g`))
		must(t, runSQL(writer, `insert into shop.visits select g, now() + g % 3 * interval '1 day' from generate_series(1, 40000) g`))
		must(t, writer.Close(t.Context())) // a session that ends says what it wrote
		for deadline := time.Now().Add(time.Minute); value[int](w, `select sum(pg_stat_get_tuples_inserted(c.oid))::int from pg_class c where c.relname like 'visits_%'`) < 40000; {
			if time.Now().After(deadline) {
				t.Fatal("the statistics do not say what was written")
			}
		}
		const policies = "policies:\n" +
			"  - {name: used, table: shop.visits, expire: {column: last_seen, after: 30 days}, pace: unlimited}\n" +
			"  - {name: idle, table: shop.idle, expire: {column: last_seen, after: 30 days}, pace: unlimited}\n"
		for file, warns := range map[string]string{policies: "used", strings.ReplaceAll(policies, "unlimited", "gentle"): ""} {
			changes, err := w.difference(file, false)
			must(t, err)
			for _, c := range changes {
				if got := pacing(c.Warnings); (got != "") != (string(c.Policy) == warns) {
					t.Errorf("apply of %s says %q", c.Policy, got)
				}
			}
		}
		w.apply(policies)
		for name, warns := range map[schemas.PolicyName]bool{"used": true, "idle": false} {
			p := w.named(name)
			s, err := survey.Ask{AtMost: 10}.InForce(t.Context(), w.exec, &p)
			must(t, err)
			if got := pacing(s.Warnings); (got != "") != warns || warns && !strings.Contains(got, "shop.visits is in use: PostgreSQL counted 40000 rows") {
				t.Errorf("the survey of %s: %q", name, got)
			}
		}
	})
}

// pacing is the warning that says to use gentle pace, "" for none.
func pacing(warnings []string) string {
	for _, warning := range warnings {
		if strings.HasPrefix(warning, "pace: unlimited") && strings.Contains(warning, "`pace: gentle`") {
			return warning
		}
	}
	return ""
}
