package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// What a command has checked its database over is the first worker's session. One that was closed is none.
func TestAPassTakesTheSessionThatWasOpenedForIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		for _, lost := range []bool{false, true} {
			e := newExecutor(t, db)
			conn, err := e.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				if err := conn.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			once(t, e)
			if !conn.IsClosed() {
				t.Error("the session that was opened is still open: nobody took it")
			}
			eventually(t, "the server has no session of it", func() bool {
				return one[int](t, db, "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'lapse%'") == 0
			})
			if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
				t.Errorf("%d rows are left, want 5", left)
			}
			e.config.Database.Port = 1
			if err := e.takeSnapshots(t.Context()); err != nil {
				t.Errorf("without an audit nothing is counted for the report, and no connection is needed: %v", err)
			}
		}
	})
}
