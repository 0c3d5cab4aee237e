package executor

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// What a command has checked its database over is the first worker's session. One that was closed is none.
func TestAPassTakesTheSessionThatWasOpenedForIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		for name, lose := range map[string]func(conn *pgx.Conn) error{
			"kept":   func(*pgx.Conn) error { return nil },
			"closed": func(conn *pgx.Conn) error { return conn.Close(t.Context()) },
			"terminated": func(conn *pgx.Conn) error {
				db.Exec(t, fmt.Sprintf("select pg_terminate_backend(%d)", conn.PgConn().PID()))
				return nil
			},
		} {
			db.Exec(t, "insert into sessions select g, now() - interval '40 days' from generate_series(1, 50) g on conflict do nothing")
			e := newExecutor(t, db)
			conn, err := e.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lose(conn); err != nil {
				t.Fatal(err)
			}
			once(t, e, "p")
			if !conn.IsClosed() {
				t.Errorf("%s: the session that was opened is still open: nobody took it", name)
			}
			eventually(t, "the server has no session of it", func() bool {
				return one[int](t, db, "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'lapse%'") == 0
			})
			if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
				t.Errorf("%s: %d rows are left, want 5", name, left)
			}
			e.config.Database.Port = 1
			if err := e.takeSnapshots(t.Context()); err != nil {
				t.Errorf("without an audit nothing is counted for the report, and no connection is needed: %v", err)
			}
		}
	})
}
