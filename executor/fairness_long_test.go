//go:build long

package executor

import (
	"context"
	"fmt"
	"testing"

	"lapse/internal/pgtest"
)

// fairness is one policy with so much due that it is busy all the time, and small ones beside it with a row that falls due again and again.
type fairness struct {
	big, small int
	every      int // seconds: the period of the small ones
	runs       int // of each of the small ones that are waited for
	bigKeys    []string
}

// judge lets an executor run, and returns the longest time between two runs of a small policy, by the ledger, in periods.
func (f fairness) judge(t *testing.T, db *pgtest.DB) (worst float64) {
	t.Helper()
	owned(t, db, "create table big (id bigint primary key, at timestamptz)", "create index on big (at, id)",
		fmt.Sprintf("insert into big select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", f.big),
		fmt.Sprintf(`do $$ begin for n in 1..%d loop
			execute format('create table small%%s (id bigint primary key, at timestamptz)', n);
			execute format('create index on small%%s (at, id)', n);
			execute format('insert into small%%s select g, clock_timestamp() - interval ''720 hours'' + g * interval ''%d milliseconds'' from generate_series(-5, %d) g', n);
		end loop; end $$`, f.small, 250*f.every, 40*f.runs), "analyze")
	entries := []string{policy("big", "public.big", append([]string{"every: 1 second"}, f.bigKeys...)...)}
	for n := range f.small {
		entries = append(entries, policy(fmt.Sprintf("small%d", n+1), fmt.Sprintf("public.small%d", n+1), fmt.Sprintf("every: %d seconds", f.every)))
	}
	arm(t, db, policies(entries...))
	e := newExecutor(t, db)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	eventually(t, "every small policy has run often enough", func() bool {
		return one[int](t, db, "select count(*) from (select from lapse.batch where policy <> 'big' group by policy having count(distinct run) >= $1) p", f.runs) == f.small
	})
	left := one[int](t, db, "select count(*) from big")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left == 0 || left == f.big {
		t.Fatalf("%d of %d rows of the big policy are left: this test says nothing", left, f.big)
	}
	return one[float64](t, db, `
		select (max(extract(epoch from r.gap)) / $1)::float8
		  from (select b.at - lag(b.at) over (partition by b.policy order by b.at) as gap
		          from (select policy, run, min(started_at) as at from lapse.batch where policy <> 'big' group by policy, run) b) r`, float64(f.every))
}

// A run can be late by what is ahead of it in its round, and by the list of policies, which is read every two seconds.
func TestFiftySmallPoliciesKeepTheirPeriodBesideABigOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	f := fairness{big: 300_000, small: 50, every: 10, runs: 2, bigKeys: []string{"batch: 20", "pace: unlimited"}}
	worst := f.judge(t, db)
	t.Logf("from one run of a small policy to the next it took %.2f periods at most", worst)
	if worst > 3 { // if each waited for the big policy it would be more than that
		t.Errorf("a small policy waited for %.2f of its periods", worst)
	}
}

func TestFiftySmallPoliciesKeepTheirPeriodBesideTenMillionRows(t *testing.T) {
	db := pgtest.New(t, pgtest.Newest(t))
	f := fairness{big: 10_000_000, small: 50, every: 10, runs: 4, bigKeys: []string{"batch: 500"}}
	worst := f.judge(t, db)
	t.Logf("from one run of a small policy to the next it took %.2f periods at most", worst)
	if worst > 1.5 {
		t.Errorf("a small policy waited for %.2f of its periods", worst)
	}
}
