package executor

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/record"
)

// Looks leave out partitions by their statistics, which are a hint. A partition whose statistics do not change is read
// again all the same: by another process at once, by this one within half the policy's latitude.
func TestAPartitionThatLooksLeaveOutIsLookedAtAgainWithinHalfTheLatitude(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table events (id bigint, at timestamptz, primary key (id, at)) partition by range (at)",
			`do $$ begin for i in 1..20 loop execute format('create table events_%s partition of events for values from (%L) to (%L)', i,
				date_trunc('day', now()) - (i + 100) * interval '1 day', date_trunc('day', now()) - (i + 99) * interval '1 day'); end loop; end $$`,
			"insert into events select g, date_trunc('day', now()) - g * interval '1 day' from generate_series(101, 120) g", "delete from events")
		arm(t, db, policies(policy("p", "public.events", "latitude: 4 hours")))
		w := newTestWorker(t, db)
		if err := w.connect(t.Context(), forever); err != nil {
			t.Fatal(err)
		}
		defer w.close()
		list, err := record.LoadInForce(t.Context(), w.session.Control)
		if err != nil {
			t.Fatal(err)
		}
		p, m := &list[0], w.memory(&list[0])
		look := func(w *worker) int {
			t.Helper()
			leaves, _, err := w.look(t.Context(), newTurn(p, w.memory(p)))
			if err != nil {
				t.Fatal(err)
			}
			return len(leaves)
		}
		if n := look(w); n != 0 || len(m.quiet.leaves) != 20 {
			t.Fatalf("the first look finds %d leaves, and %d are remembered", n, len(m.quiet.leaves))
		}
		db.Exec(t, "set track_counts = off", "insert into events values (1, date_trunc('day', now()) - interval '105 days')", "reset track_counts")
		if n := look(w); n != 0 {
			t.Errorf("by the statistics nothing was written, and %d leaves are to be tried", n)
		}
		for leaf, q := range m.quiet.leaves {
			if in := time.Until(q.Until); in > 2*time.Hour || in < time.Hour {
				t.Errorf("leaf %d is left out for %s", leaf, in)
			}
		}
		other := newTestWorker(t, db)
		if err := other.connect(t.Context(), forever); err != nil {
			t.Fatal(err)
		}
		defer other.close()
		if n := look(other); n != 1 {
			t.Errorf("another process finds %d leaves", n)
		}
		for leaf, q := range m.quiet.leaves {
			q.Until = time.Now().Add(-time.Second)
			m.quiet.leaves[leaf] = q
		}
		if n := look(w); n != 1 || len(m.quiet.leaves) != 19 {
			t.Errorf("after half the latitude the look finds %d leaves, and %d are remembered", n, len(m.quiet.leaves))
		}
	})
}
