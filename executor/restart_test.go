package executor

import (
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// Metrics of a process that begins are what the catalog knows: of policies that are not due before tomorrow, of runs that are no longer on
// record, and of one with a row in quarantine.
func TestMetricsOfAProcessThatBeginsComeFromTheCatalog(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		owned(t, db, "create table answers (id int primary key, session bigint not null references sessions)", "insert into answers values (1, 7)")
		arm(t, db, policies(policy("p", "public.sessions", `daily: "03:00 UTC"`)))
		if _, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"}); err == nil {
			t.Error("a row in quarantine is not an error")
		}

		begun := func(wanted float64) {
			t.Helper()
			e := newExecutor(t, db, func(c *Config) { c.LedgerDays = 400 })
			_, _ = e.Once(t.Context(), nil) // there is a row in quarantine
			for name, want := range map[string]float64{
				"lapse_rows_deleted_total":          wanted,
				"lapse_rows_quarantined":            1,
				"lapse_watermark_timestamp_seconds": one[float64](t, db, "select coalesce(max(extract(epoch from watermark)), 0)::float8 from lapse.run"),
			} {
				if got := counted(t, e, name); got == 0 || got-want > 0.001 || want-got > 0.001 {
					t.Errorf("%s is %f, want %f", name, got, want)
				}
			}
			ended := one[float64](t, db, "select max(extract(epoch from ended_at))::float8 from lapse.run")
			if got := counted(t, e, "lapse_last_success_timestamp_seconds"); got < ended-0.001 {
				t.Errorf("the last success was at %f, and a run ended at %f", got, ended)
			}
		}
		begun(19)

		formerly(t, db, 40, 10)
		db.Exec(t, "update lapse.shard set deleted = 100 where run in (select run from lapse.run where started_at < now() - interval '30 days')")
		begun(319)
		if pruned(t, db, 30) == 0 {
			t.Error("nothing was removed")
		}
		begun(319)
	})
}
