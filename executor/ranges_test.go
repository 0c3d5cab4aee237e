package executor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// Each of them has a range, and neither meets the other's rows.
func TestTwoWorkersWorkOnRangesOfOneTableSideBySide(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { workSideBySide(t, db, newExecutor(t, db)) })
}

func TestTwoWorkersWorkOnRangesOfOneFileSideBySide(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		e := newExecutor(t, db)
		e.readBacklog = func(_ context.Context, _ *pgx.Conn, p *record.InForce, _ time.Time, _ *survey.Judgement) (survey.Backlog, error) {
			return survey.Backlog{Heaps: []uint32{p.TableOID}}, nil
		}
		workSideBySide(t, db, e)
		if n := one[int](t, db, "select count(*)::int from lapse.shard where in_heap"); n != 9 {
			t.Errorf("%d shards go by the file", n)
		}
	})
}

func workSideBySide(t *testing.T, db *pgtest.DB, e *Executor) {
	t.Helper()
	const due, live = 24000, 300
	sessions(t, db, due, live)
	arm(t, db, policies(policy("p", "public.sessions", "batch: 500", "pace: unlimited")))
	h := recorded(t, db)
	isExact(t, db, once(t, e), due, live)
	noRowTwice(t, h, "public.sessions", due)
	if n := overlapping(t, db, "b.target = a.target"); n == 0 {
		t.Error("no two batches ran side by side")
	}
	got := one[string](t, db, `select string_agg(concat_ws('/', slice, residual, done, deleted > 1500), ' ' order by slice) from lapse.shard`)
	if want := "0/f/t/t 1/f/t/t 2/f/t/t 3/f/t/t 4/f/t/t 5/f/t/t 6/f/t/t 7/f/t/t 8/t/t/f"; got != want {
		t.Errorf("the shards are %s", got)
	}
}

// Other executors may help one with a single worker, so that its runs are cut too. Where the policy's survey fails, a run is opened
// with its leaves whole. One that somebody changed is not called.
func TestARunIsCutForOneWorkerTooAndNotWithoutASurvey(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 24000, 30
		sessions(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 1000", "pace: unlimited")))
		const survey = "function lapse.survey_1_1(timestamptz, bigint, bigint)"
		db.Exec(t, "alter "+survey+" security invoker")
		e := newExecutor(t, db)
		if s, err := e.Once(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "lapse.survey_1_1") || only(t, s).Deleted != 0 {
			t.Errorf("with a survey that was changed: %+v, %v", s, err)
		}
		db.Exec(t, "alter "+survey+" security definer")
		isExact(t, db, once(t, newExecutor(t, db, func(c *Config) { c.Limits.Workers = 1 })), due, live)
		shards := func(want int) {
			t.Helper()
			if n := one[int](t, db, `select count(*)::int from lapse.shard s join lapse.run using (run) where number = (select max(number) from lapse.run)`); n != want {
				t.Errorf("the run has %d shards, want %d", n, want)
			}
		}
		shards(9)
		db.Exec(t, "drop "+survey)
		db.Exec(t, "insert into sessions select -g, now() - interval '40 days' from generate_series(1, 24000) g; analyze sessions")
		if did := only(t, once(t, e, "p")); did.Deleted != due {
			t.Errorf("without a survey %d rows were deleted", did.Deleted)
		}
		shards(1)
	})
}
