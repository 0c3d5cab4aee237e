package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// Each of them has a part of the leaf, and neither meets the other's rows.
func TestTwoWorkersWorkOnSlicesOfOneLeafSideBySide(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 1500, 300
		sessions(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "shards: {count: 2}", "pace: unlimited")))
		h := recorded(t, db)
		isExact(t, db, once(t, newExecutor(t, db)), due, live)
		noRowTwice(t, h, "public.sessions", due)
		if n := overlapping(t, db, "b.target = a.target"); n == 0 {
			t.Error("no two batches ran side by side")
		}
		got := one[string](t, db, `select string_agg(concat_ws('/', slice, residual, done, deleted > 500), ' ' order by slice) from lapse.shard`)
		if got != "0/f/t/t 1/f/t/t 2/t/t/f" {
			t.Errorf("the shards are %s", got)
		}
	})
}
