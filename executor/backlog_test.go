package executor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/internal/pgtest"
)

// What INTERFACES promises of the executor: names that people's dashboards have.
func TestTheExecutorsMetricsHaveTheirNames(t *testing.T) {
	t.Parallel()
	descriptions := make(chan *prometheus.Desc, 100)
	for _, c := range newMetrics().Collectors() {
		c.Describe(descriptions)
	}
	close(descriptions)
	var names []string
	for d := range descriptions {
		_, rest, _ := strings.Cut(d.String(), `fqName: "lapse_`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	for _, want := range strings.Fields(`rows_deleted_total rows_cascaded_total batches_total batch_seconds batch_size run_seconds expired_backlog_rows
		oldest_expired_age_seconds watermark_timestamp_seconds rows_held skips_total throttle_seconds_total limit_reached_total policy_state
		last_success_timestamp_seconds schedule_lag_seconds deletion_stopped paused held_back rows_quarantined oldest_quarantined_age_seconds`) {
		if !slices.Contains(names, want) {
			t.Errorf("there is no metric lapse_%s", want)
		}
	}
}

func TestTheMetricsSayWhatARunLeft(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		locker, err := db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Exec(t.Context(), "select from sessions where id = 50 for update"); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		once(t, e, "p")
		due := one[float64](t, db, "select extract(epoch from at + interval '30 days')::float8 from sessions where id = 50")
		if got := counted(t, e, "lapse_expired_backlog_rows"); got != 1 {
			t.Errorf("the backlog is %v rows, want 1", got)
		}
		if got := counted(t, e, "lapse_watermark_timestamp_seconds"); got != due {
			t.Errorf("the watermark is %v, want when the row fell due, %v", got, due)
		}
		if got := counted(t, e, "lapse_oldest_expired_age_seconds"); got < 10*24*3600 {
			t.Errorf("the oldest row is %v s overdue, want ten days", got)
		}
		if err := locker.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second finds nothing
			begun := seconds(time.Now())
			once(t, e, "p")
			if counted(t, e, "lapse_expired_backlog_rows") != 0 || counted(t, e, "lapse_oldest_expired_age_seconds") != 0 {
				t.Error("nothing is left, and there is a backlog")
			}
			if counted(t, e, "lapse_watermark_timestamp_seconds") < begun-5 || counted(t, e, "lapse_last_success_timestamp_seconds") < begun-5 {
				t.Error("watermark or last success are those of an earlier run")
			}
		}
	})
}
