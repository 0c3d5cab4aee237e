package executor

import (
	"sync"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// One worker has all that the pass grants. Of several, one may be granted rows that it gives back when the other's turn is over.
func TestAllPoliciesTogetherKeepToRowsPerPass(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table a (id bigint primary key, at timestamptz)", "create index on a (at, id)", "create table b (id bigint primary key, at timestamptz)", "create index on b (at, id)",
			"insert into a select g, now() - interval '40 days' from generate_series(1, 250) g", "insert into b select g, now() - interval '40 days' from generate_series(1, 250) g", "analyze a, b")
		arm(t, db, policies(policy("a", "public.a", "batch: 64"), policy("b", "public.b", "batch: 64", "pace: unlimited")))
		e := newExecutor(t, db, func(c *Config) { c.Limits.RowsPerPass, c.Limits.Workers = 150, 1 })
		left := 500
		for range 4 {
			s := once(t, e, "a", "b")
			now := one[int](t, db, "select (select count(*) from a) + (select count(*) from b)")
			if want := max(left-150, 0); now != want {
				t.Fatalf("%d rows are left of %d, want %d", now, left, want)
			}
			left = now
			limited := 0
			for _, p := range s.Policies {
				if p.Outcome == Limited && p.Limit != "" {
					limited++
				} else if p.Outcome != Finished {
					t.Errorf("%+v", p)
				}
			}
			if (limited > 0) != (left > 0) {
				t.Errorf("%d rows are left, and %d policies are at the limit", left, limited)
			}
		}
	})
}

// However many workers take and give back, a pass grants what it has and no more; the next one has all of it again, and no row of the last.
func TestAPassGrantsWhatItHas(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &quota{most: 1000}
	p.begin(time.Minute)
	for round := range 3 {
		at := now.Add(time.Duration(round) * time.Minute)
		var mu sync.Mutex
		spent := 0
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					granted, until := p.take(64, at)
					if granted == 0 {
						if !until.Equal(at.Add(time.Minute)) {
							t.Errorf("the next pass begins at %s", until)
						}
						return
					}
					p.giveBack(granted / 3)
					mu.Lock()
					spent += granted - granted/3
					mu.Unlock()
				}
			})
		}
		workers.Wait()
		if spent > 1000 || spent < 990 {
			t.Errorf("pass %d: %d rows were spent", round, spent)
		}
	}
	p.giveBack(5000)
	if granted, _ := p.take(9999, now.Add(2*time.Minute)); granted > 1000 {
		t.Errorf("%d rows were granted of a pass of 1000", granted)
	}
	p.begin(0)
	if granted, _ := p.take(9999, now); granted != 1000 {
		t.Errorf("a single pass grants %d", granted)
	}
	if granted, until := p.take(1, now.Add(time.Hour)); granted != 0 || !until.IsZero() {
		t.Errorf("a single pass grants %d more, the next at %s", granted, until)
	}
}
