package executor

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestMostOfTheTimeIsLeftToAnApplicationThatIsThere(t *testing.T) {
	t.Parallel()
	c, now := newPace(), time.Now()
	look := func(others bool) float64 {
		now = now.Add(factsInterval)
		c.counted(1, others, now)
		return c.share()
	}
	for _, step := range []struct {
		what   string
		others bool
		looks  int
		want   float64
	}{
		{"nobody is there at first", false, 1, quietShare},
		{"somebody is seen once", true, 1, gentleShare},
		{"and not again", false, 9, gentleShare},
		{"and not for long", false, 1, quietShare},
		{"every third look sees somebody", true, 1, gentleShare},
		{"and two do not", false, 2, gentleShare},
	} {
		for n := range step.looks {
			if got := look(step.others); got != step.want {
				t.Errorf("%s: after look %d it has %v of the time, want %v", step.what, n, got, step.want)
			}
		}
	}
	now = now.Add(-time.Hour)
	if got := look(false); got != quietShare {
		t.Errorf("after the clock was set back: %v", got)
	}
}

// The server is one of its own: on another there are other tests.
func TestAnApplicationIsSeenInWhateverDatabaseAndOneThatDoesNothingIsNot(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		executor := schemas.RolesFor(schemas.DefaultRolePrefix).Executor
		look := func() float64 {
			t.Helper()
			w := newTestWorker(t, db)
			defer w.close()
			w.pace.ask = askCompany
			if err := w.connect(t.Context(), forever); err != nil {
				t.Fatal(err)
			}
			if err := w.countCompany(t.Context()); err != nil {
				t.Fatal(err)
			}
			return w.pace.share()
		}
		idle := db.Connect(t)
		if _, err := idle.Exec(t.Context(), "begin; create table seen ()"); err != nil {
			t.Fatal(err)
		}
		for _, rights := range []string{"select", "grant pg_read_all_stats to " + executor} {
			db.Exec(t, rights)
			eventually(t, "nobody is at work", func() bool { return look() == quietShare })
			other, err := pgx.Connect(t.Context(), db.Server.URL("postgres", "postgres"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var slept sync.WaitGroup
			slept.Go(func() { _, _ = other.Exec(ctx, "select pg_sleep(600)") }) // it ends with ctx
			eventually(t, "a statement in another database is seen: "+rights, func() bool { return look() == gentleShare })
			cancel()
			slept.Wait()
		}
	})
}
