//go:build torture

package executor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// The tests of make torture: each goes on for LAPSE_TORTURE minutes with a printed seed. LAPSE_TEST_SEED repeats a run's choices (not
// its timing), LAPSE_PG=14 leaves 18 out.

func tortureTime(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(number(t, "LAPSE_TORTURE", 5)) * time.Minute
}

// Each round is a process of its own, with a seed of its own.
func TestTortureExactlyTheDueRowsGo(t *testing.T) { torture(t, "TestExactlyTheDueRowsGo") }

func TestTortureWhateverMeetsInARunExactlyTheDueRowsGo(t *testing.T) {
	torture(t, "TestWhateverMeetsInARunExactlyTheDueRowsGo")
}

// torture repeats a test of random worlds.
func torture(t *testing.T, test string) {
	t.Helper()
	seed, ends, rounds := number(t, "LAPSE_TEST_SEED", time.Now().UnixNano()%1_000_000_000), time.Now().Add(tortureTime(t)), 0
	for ; time.Now().Before(ends); rounds++ {
		round := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1",
			"-rapid.checks=50", fmt.Sprintf("-rapid.seed=%d", seed+int64(rounds)+1))
		if out, err := round.CombinedOutput(); err != nil {
			t.Fatalf("SEED=%d: %v\n%s", seed+int64(rounds)+1, err, out)
		}
	}
	t.Logf("SEED=%d: %d rounds of 50 worlds, each on every version: no violation", seed, rounds)
}

// Every message that an executor sends is lost, unanswered, late and slow, in a random order, again and again.
func TestTortureWhereverTheConnectionIsCut(t *testing.T) {
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		random, ends := seeded(t, db.Major), time.Now().Add(tortureTime(t))
		o := newSabotage(t, db)
		messages, tried := o.try(0, lost), map[[2]int]bool{}
		var kinds [faults]int
		for time.Now().Before(ends) && !t.Failed() {
			for _, n := range random.Perm(messages * int(faults)) {
				at, f := 1+n/int(faults), fault(n%int(faults))
				o.try(at, f)
				tried[[2]int{at, int(f)}] = true
				kinds[f]++
				if time.Now().After(ends) || t.Failed() {
					break
				}
			}
		}
		t.Logf("%d of %d faults tried (%v, %v, %v, %v: %v): no violation", len(tried), messages*int(faults), lost, deaf, late, slow, kinds)
	})
}

// Any of four executors is killed, again and again, and its leases end by themselves. No shard is stuck longer than its lease.
func TestTortureKillsOfAnyOfFourExecutors(t *testing.T) {
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		random, ends := seeded(t, db.Major), time.Now().Add(tortureTime(t))
		const due, live = 20_000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20", "every: 100 milliseconds")))
		h := recorded(t, db)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stuck := make(chan time.Duration, 1)
		go func() { stuck <- longestStuck(ctx, t, db) }()
		kills, total := 0, int64(due)
		for first := true; first || kills < 50 || time.Now().Before(ends); first = false {
			if !first {
				db.Exec(t, fmt.Sprintf("insert into sessions select 1000000 + %d + g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", total, due),
					fmt.Sprintf("insert into logins select id from sessions where id > 1000000 + %d and id %% 10 = 0", total))
				total += due
			}
			c := newCrew(t, db, random, 4)
			c.leases = true
			for c.wreck(1) && c.kills < 20 {
			}
			c.finish()
			kills += c.kills
			if t.Failed() {
				return
			}
		}
		stop()
		isWhole(t, db, h, total, live)
		lease := time.Duration(one[float64](t, db, "select extract(epoch from lapse.lease_time())::float8") * float64(time.Second))
		longest := <-stuck
		if longest > lease/2 {
			t.Errorf("a shard was free for %v, and nobody took it", longest)
		}
		t.Logf("%d kills, %d rows: no violation; a shard was free for %v at most", kills, total, longest.Round(time.Millisecond))
	})
}

// longestStuck is the longest time that a shard whose lease had ended waited for the next one, while executors were there.
func longestStuck(ctx context.Context, t *testing.T, db *pgtest.DB) (longest time.Duration) {
	for ctx.Err() == nil {
		seconds := one[float64](t, db, `
			select coalesce(max(extract(epoch from clock_timestamp() - s.lease_until)), 0)::float8
			  from lapse.shard s
			 where not s.done and not s.aside and s.lease_until < clock_timestamp()`)
		longest = max(longest, time.Duration(seconds*float64(time.Second)))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return longest
}
