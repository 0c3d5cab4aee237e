package executor

import (
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// Rows that stay because somebody has their children locked do not resist. A run that met them one by one, in both of its passes, said of twice
// as many that they could not be deleted. The children are another's, so that no batch may lock them ahead of its rows.
func TestRowsWhoseChildrenAreLockedAreNotCountedAsResisting(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 3, 1)
		db.Exec(t, "create table notes (id bigint primary key, session bigint references sessions on delete cascade)", "create index on notes (session)",
			"insert into notes select id, id from sessions")
		arm(t, db, policies(policy("p", "public.sessions")))
		holder := db.Connect(t)
		if _, err := holder.Exec(t.Context(), "begin; select from notes for update"); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
		p := only(t, s)
		if n := counted(t, e, "lapse_batches_total", "step_over"); n == 0 {
			t.Errorf("no row was met alone: %+v", p)
		}
		if err != nil || p.Deleted != 0 || p.Whole.SteppedOver != 0 || !p.LeftBehind {
			t.Errorf("with the children locked: %+v, %v", p, err)
		}
	})
}
