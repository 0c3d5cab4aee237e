package executor

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// What resists stays, and is the oldest of what is due: with the years it is hundreds of rows, after which lie all that are to go.
func TestBehindHundredsOfRowsThatResistTheOthersGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const resisting, due = 230, 600
		sessions(t, db, due, 5)
		owned(t, db, "create table kept (id bigint references sessions)", "create index on kept (id)",
			fmt.Sprintf("insert into kept select id from sessions where id > %d and id <= %d", due-resisting, due))
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e := newExecutor(t, db)
		pass := func(outcome Outcome, left int) {
			t.Helper()
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			if p := only(t, s); p.Outcome != outcome {
				t.Errorf("it is %s, want %s: %v", p.Outcome, outcome, err)
			}
			if n := one[int](t, db, "select count(*)::int from sessions where id <= $1", due); n != left {
				t.Errorf("%d due rows are left, want %d", n, left)
			}
		}
		pass(Resisted, resisting)
		pass(Resisted, resisting) // at once
		// All of them are to be tried again, in another run.
		db.Exec(t, "update lapse.quarantine set retry_at = clock_timestamp(), entered_at = entered_at - interval '1 day'")
		owned(t, db, "insert into sessions select 10000 + g, now() - interval '35 days' from generate_series(1, 20) g")
		pass(Resisted, resisting)
		if n := one[int](t, db, "select count(*)::int from sessions where id > 10000"); n != 0 {
			t.Errorf("%d rows are left after those that resist again", n)
		}
	})
}
