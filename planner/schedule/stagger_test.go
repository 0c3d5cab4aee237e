package schedule

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lapse/planner/expiry"
)

// lateBy is how long an executor takes until a run that is due begins.
const lateBy = 300 * time.Millisecond

// Policies that were applied together begin apart from each other some periods later, and stay so.
func TestPoliciesOfTheSamePeriodDriftApart(t *testing.T) {
	t.Parallel()
	const policies, tenths = 200, 10
	applied := instant(t, "2026-11-24T10:00:00Z")
	restarted := applied.Add(100 * time.Hour)
	for _, began := range []time.Time{applied, restarted} { // all of them late by then: the same again
		var busiest [21]int
		begins := map[int][tenths]int{}
		for n := range policies {
			s := Schedule{Every: expiry.Interval{Microseconds: 3600e6}, Spread: SpreadOf(fmt.Sprintf("policy-%d", n))}
			last := began.Add(time.Duration(n) * 5 * time.Millisecond) // one after the other, at once
			for range 40 {
				next, err := s.Next(last, applied)
				if err != nil {
					t.Fatal(err)
				}
				if apart := next.Sub(last); apart > time.Hour || apart < 54*time.Minute {
					t.Fatalf("two runs are %v apart", apart)
				}
				last = next.Add(lateBy)
				period := int(last.Sub(began) / time.Hour)
				counts := begins[period]
				counts[int(last.Sub(began)%time.Hour/(6*time.Minute))]++
				begins[period] = counts
			}
		}
		for period := range busiest {
			for _, n := range begins[period] {
				busiest[period] = max(busiest[period], n)
			}
		}
		if busiest[0] != policies {
			t.Logf("of %d policies %v begin in the busiest tenth of each period", policies, busiest)
		}
		for period := 12; period < len(busiest); period++ {
			if busiest[period] > policies/4 {
				t.Errorf("in period %d %d of %d policies begin within a tenth of it: %v", period, busiest[period], policies, begins[period])
			}
		}
	}
}

// A run is never later for it, and sooner by a tenth at most. At its place a policy stays, however late each run begins.
func TestAStaggeredRunIsNeverLater(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		every := expiry.Interval{
			Months: rapid.Int32Range(0, 1).Draw(rt, "months"), Days: rapid.OneOf(rapid.Just(int32(0)), rapid.Int32Range(0, 3_000_000)).Draw(rt, "days"),
			Microseconds: rapid.Int64Range(100_000, 1e15).Draw(rt, "microseconds"),
		}
		with := Schedule{Every: every, Spread: SpreadOf(rapid.String().Draw(rt, "name"))}
		last := time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "last"), rapid.Int64Range(0, 1e9-1).Draw(rt, "nanoseconds")).UTC()
		latest := every.After(last)
		next, err := with.Next(last, last)
		if err != nil {
			rt.Fatal(err)
		}
		if next.After(latest) || latest.Sub(next) > latest.Sub(last)/staggerShare {
			rt.Fatalf("after %v, every %v: %v, without its place %v", last, every, next, latest)
		}
		if every.Months > 0 || every.Exact() > longestStaggered.Microseconds() {
			return
		}
		period := time.Duration(every.Exact()) * time.Microsecond
		for range 2*staggerShare + 1 {
			next, _ = with.Next(next.Add(period/100), last)
		}
		if place := time.Duration(next.UnixNano()) % period; place%placesApart != 0 {
			rt.Fatalf("its place is %v, no multiple of %v", place, placesApart)
		}
		if again, _ := with.Next(next.Add(period/100), last); again.Sub(next) != period {
			rt.Fatalf("at its place %v, and then %v, not %v later", next, again, period)
		}
	})
}
