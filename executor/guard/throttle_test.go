package guard

import (
	"strconv"
	"testing"
	"time"

	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

func TestEachThrottleSlowsDownAndStopsWhereItShould(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	now := time.Now()
	gentle := &record.InForce{TableName: "public.t"}
	hurried := &record.InForce{TableName: "public.t", Limits: policyfile.Limits{Pace: "unlimited"}}
	slot := func(usedPercent int64) func(*Facts) {
		return func(f *Facts) {
			safe := (100 - usedPercent) * mb
			f.load.Restart, f.load.Flushed, f.load.Safe = 1000*mb, 1000*mb+asLSN(usedPercent*mb), &safe
		}
	}
	waiting := func(n int) func(*Facts) { return func(f *Facts) { f.load.Waiting = n } }
	busy := func(n int) func(*Facts) {
		return func(f *Facts) { f.load.Connections, f.load.MaxConnections = n, 100 }
	}
	held := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.load.Oldest = d.Seconds() } }
	for name, c := range map[string]struct {
		spoil          func(*Facts)
		table          *Table
		want, hurried  Verdict
		reason         Reason
		atLeast, below float64
	}{
		"little of the slot":           {slot(49), nil, Go, Go, "", 0, 0},
		"half of the slot":             {slot(50), nil, Slow, Slow, Headroom, 2, 2.1},
		"nearly three quarters of it":  {slot(74), nil, Slow, Slow, Headroom, 9, 10},
		"three quarters of the slot":   {slot(75), nil, Wait, Wait, Headroom, 0, 0},
		"all of the slot":              {slot(100), nil, Wait, Wait, Headroom, 0, 0},
		"more than all of the slot":    {slot(120), nil, Wait, Wait, Headroom, 0, 0},
		"nobody waits":                 {waiting(0), nil, Go, Go, "", 0, 0},
		"one session waits":            {waiting(1), nil, Slow, Go, LockWaiters, 2, 2.1},
		"many sessions wait":           {waiting(20), nil, Slow, Go, LockWaiters, 10, 10.1},
		"connections are left":         {busy(90), nil, Go, Go, "", 0, 0},
		"few connections are left":     {busy(91), nil, Slow, Go, Crowded, 2, 2.1},
		"a snapshot":                   {held(15 * time.Minute), nil, Go, Go, "", 0, 0},
		"an old snapshot":              {held(16 * time.Minute), nil, Slow, Go, OldSnapshot, 3, 3.1},
		"few dead rows":                {waiting(0), &Table{100_000, 0, 50}, Go, Go, "", 0, 0},
		"dead rows that vacuum awaits": {waiting(0), &Table{1_000_000, 1_000_000, 200_050}, Go, Go, "", 0, 0},
		"dead rows that outrun vacuum": {waiting(0), &Table{1_100_000, 1_000_000, 200_050}, Slow, Go, VacuumBehind, 3, 3.1},
	} {
		f := good()
		c.spoil(&f)
		var m Memory
		m.Observe(&f, m.Unconfirmed.Draw(), now)
		q := Question{Now: now, Facts: &f, Memory: &m, Policy: gentle, Table: c.table}
		a := Strictest(All(Limits{}, nil), &q)
		if a.Verdict != c.want || a.Reason != c.reason || a.Verdict != Go && (a.Detail == "" || a.Fix == "") {
			t.Errorf("%s: %+v, want %v for %q", name, a, c.want, c.reason)
		}
		if a.Verdict == Slow && (a.Slowdown < c.atLeast || a.Slowdown >= c.below) {
			t.Errorf("%s: slowed down by %v, want %v to %v", name, a.Slowdown, c.atLeast, c.below)
		}
		q.Policy = hurried
		if a := Strictest(All(Limits{}, nil), &q); a.Verdict != c.hurried {
			t.Errorf("%s, with pace: unlimited: %+v, want %v", name, a, c.hurried)
		}
		f.required = false
		q.Policy = gentle
		if a := Strictest(All(Limits{}, nil), &q); c.reason == Headroom && a.Verdict != Go {
			t.Errorf("%s, without an audit: %+v", name, a)
		}
	}
}

func TestASlotWhoseLogStandsStillAsksForAPerson(t *testing.T) {
	t.Parallel()
	f := good()
	safe := int64(10)
	f.load.Restart, f.load.Flushed, f.load.Safe = 100, 190, &safe
	var m Memory
	now := time.Now()
	if a := ask(&m, &f, now); a.Verdict != Wait {
		t.Errorf("at once: %+v", a)
	}
	if a := ask(&m, &f, now.Add(stallPatience)); a.Verdict != Refuse || a.Reason != Headroom {
		t.Errorf("not moving: %+v", a)
	}
	f.load.Restart = 101
	if a := ask(&m, &f, now.Add(2*stallPatience)); a.Verdict != Wait {
		t.Errorf("moving again: %+v", a)
	}
}

func TestASessionThatWaitedOnceSlowsDownForAWhile(t *testing.T) {
	t.Parallel()
	f := good()
	f.load.Waiting = 5
	var m Memory
	now := time.Now()
	ask(&m, &f, now)
	f.load.Waiting = 0
	if a := ask(&m, &f, now.Add(waitersCalm-time.Second)); a.Verdict != Slow || a.Slowdown != 2 {
		t.Errorf("nobody waits since: %+v", a)
	}
	if a := ask(&m, &f, now.Add(waitersCalm)); a.Verdict != Go {
		t.Errorf("a while later: %+v", a)
	}
}

// A standby's lag is told from what was written while this process looked, whether the standby moves, stops or says nothing.
func TestAStandbyLagsForAsLongAsSomethingIsWrittenThatItHasNotReplayed(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	now := time.Now()
	var m Memory
	f := good()
	look := func(after time.Duration, flushed, replayed int) Answer {
		now = now.Add(after)
		f.load.Flushed = asLSN(int64(flushed) * mb)
		f.load.Replicas = []replica{{"far", 1}, {"near", asLSN(int64(replayed) * mb)}}
		m.Observe(&f, m.Unconfirmed.Draw(), now)
		return Strictest(All(Limits{Delayed: []string{"far"}}, nil), &Question{Now: now, Facts: &f, Memory: &m})
	}
	for _, step := range []struct {
		name              string
		after             time.Duration
		flushed, replayed int
		want              Verdict
	}{
		{"at the beginning", 0, 100, 100, Go},
		{"an hour in which nothing was written", time.Hour, 100, 100, Go},
		{"a standby that is always a little behind", time.Hour, 101, 100, Go},
		{"a burst", time.Second, 200, 101, Go},
		{"as long as is allowed", 10 * time.Second, 300, 101, Go},
		{"longer", time.Second, 300, 101, Slow},
		{"three times as long", 19 * time.Second, 310, 102, Slow},
		{"longer than that", time.Second, 310, 102, Wait},
		{"it goes on, and is behind by the time of what it has not reached", time.Second, 310, 200, Slow},
		{"it has caught up", time.Second, 310, 310, Go},
	} {
		if a := look(step.after, step.flushed, step.replayed); a.Verdict != step.want || a.Verdict != Go && a.Reason != ReplicaLag {
			t.Errorf("%s: %+v, want %v", step.name, a, step.want)
		}
	}
	a := Strictest(All(Limits{}, nil), &Question{Now: now, Facts: &f, Memory: &m})
	if a.Verdict != Wait || a.Reason != ReplicaLag {
		t.Errorf("a standby that nobody said lags on purpose: %+v", a)
	}
	if a := Strictest(All(Limits{ReplicaLag: -1}, nil), &Question{Now: now, Facts: &f, Memory: &m}); a.Verdict != Go {
		t.Errorf("with replica_lag: off: %+v", a)
	}
	hurried := &record.InForce{Limits: policyfile.Limits{Pace: "unlimited"}}
	f.load.Replicas, f.load.Flushed = f.load.Replicas[1:], 400*mb
	m.Observe(&f, m.Unconfirmed.Draw(), now)
	for after, want := range map[time.Duration]Verdict{20 * time.Second: Go, 31 * time.Second: Wait} {
		q := Question{Now: now.Add(after), Facts: &f, Memory: &m, Policy: hurried}
		if a := Strictest(All(Limits{}, nil), &q); a.Verdict != want {
			t.Errorf("%s behind, with pace: unlimited: %+v, want %v", after, a, want)
		}
	}
}

func TestWhatIsRememberedOfTheLogIsBounded(t *testing.T) {
	t.Parallel()
	var p progress
	now := time.Now()
	for i := range 100_000 {
		p.add(asLSN(int64(i+1)), now.Add(time.Duration(i)*time.Second))
	}
	if len(p.written) > mostWritten {
		t.Errorf("%d instants are kept", len(p.written))
	}
	end := now.Add(99_999 * time.Second)
	for position, most := range map[int64]time.Duration{100_000: 0, 99_999: 0, 99_990: 9 * time.Second, 96_400: time.Hour - time.Second, 1: 99_998 * time.Second} {
		got := p.behind(asLSN(position), end)
		if got > most || got < most*9/10 {
			t.Errorf("at %s: %s behind, want at most %s and nine tenths of it at least", strconv.FormatInt(position, 10), got, most)
		}
	}
}

func asLSN(n int64) schemas.LSN { return schemas.LSN(n) }
