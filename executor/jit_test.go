package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestJITOnInThePackagedServerCostsNothing(t *testing.T) {
	t.Parallel()
	// Where statements are compiled, a batch takes hundreds of times as long. The bound leaves room for a busy machine,
	// and one of the tries must keep it.
	const bound, tries, rows, batch = 5, 3, 60, 2
	db := pgtest.Packaged(t)
	sessions(t, db, rows, 100)
	arm(t, db, policies(policy("p", "public.sessions", fmt.Sprintf("batch: %d", batch))))
	var ratio float64
	for range tries {
		without := timePerBatch(t, db, "off", rows, time.Minute)
		with := timePerBatch(t, db, "on", rows, 2*bound*rows/batch*without)
		ratio = with.Seconds() / without.Seconds()
		t.Logf("a batch takes %v with jit off and %v with jit on: %.1f times as long", without, with, ratio)
		if ratio < bound {
			return
		}
	}
	t.Errorf("with jit on a batch takes %.1f times as long, want less than %d times", ratio, bound)
}

// timePerBatch makes the first rows of sessions due again and deletes them in one pass over new connections, with the
// database's jit as given. After limit the pass is cut off. A pass without a batch counts as one.
func timePerBatch(t *testing.T, db *pgtest.DB, jit string, rows int, limit time.Duration) time.Duration {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`
		insert into sessions
		select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g
		    on conflict do nothing`, rows),
		"analyze sessions", "alter database "+db.Name+" set jit = "+jit)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e := newExecutor(t, db)
	begun := time.Now()
	s, err := e.Once(ctx, []schemas.PolicyName{"p"})
	took := time.Since(begun)
	if err != nil && !errors.Is(err, ErrStopping) {
		t.Fatal(err)
	}
	batches := int64(1)
	for _, p := range s.Policies {
		batches = max(batches, p.Batches)
	}
	return took / time.Duration(batches)
}
