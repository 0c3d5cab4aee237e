package planner

import (
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
)

// What one batch found and deleted has no residual pass. Where a row of it was locked, or there was more than one batch, there is one.
func TestAPassOfOneBatchThatDeletesAllThatItFindsIsTheLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shape    string
		limit    int
		locked   bool
		finished []bool // after each batch
	}{
		"a range":           {functions.ShapeRange, 20, false, []bool{true}},
		"a pick":            {functions.ShapePick, 20, false, []bool{true}},
		"two batches":       {functions.ShapeRange, 6, false, []bool{false, false, true}},
		"with a locked row": {functions.ShapePick, 20, true, []bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{pgtest.Newest(t)}, func(t *testing.T, db *pgtest.DB) {
				w := newWorld(t, db, sessions, `create index on sessions (last_seen)`)
				w.fill("sessions", 10)
				p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
				b := w.lease(p, w.open(&p))
				b.Limit, b.Shape = c.limit, c.shape
				tx, err := w.owner.Begin(t.Context())
				must(t, err)
				if c.locked {
					_, err = tx.Exec(t.Context(), `select from sessions where id = 3 for update`)
					must(t, err)
				}
				for i, finished := range c.finished {
					got, err := w.call(b, nil)
					must(t, err)
					if got.Finished != finished {
						t.Errorf("batch %d: got %+v, want finished %t", i+1, got, finished)
					}
					must(t, tx.Rollback(t.Context()))
					tx, err = w.owner.Begin(t.Context())
					must(t, err)
				}
				must(t, tx.Rollback(t.Context()))
				w.wantIDs("sessions", numbers(11, 20)...)
			})
		})
	}
}
