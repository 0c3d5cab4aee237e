package guard

import (
	"strings"
	"testing"
	"time"

	"lapse/schemas"
)

// ask takes a look down, as the executor does, and asks all guards.
func ask(m *Memory, f *Facts, now time.Time) Answer {
	m.Observe(f, m.Unconfirmed.Draw(), now)
	return Strictest(All(Limits{}, nil), &Question{Now: now, Facts: f, Memory: m})
}

// good are the facts of a database in which batches may run.
func good() Facts {
	return Facts{
		installed: true, required: true, exists: true, local: true, status: "reserved", active: true, confirmed: 100, insert: 100,
		beating: true,
	}
}

func TestAnAuditorThatWasSeenIsBelievedForAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	gone := good()
	gone.active, gone.beating = false, false
	beating := gone
	beating.beating = true
	bent := gone
	bent.last = &identity{History: 1, Timeline: 2, System: "1"}
	active, restarted, tampered := bent, good(), good()
	active.active = true
	restarted.beating, restarted.restarted = false, true
	doubted := good()
	doubted.beating, doubted.doubted = false, true
	tampered.difference = "publication lapse_deletes was changed"
	var m Memory
	for _, step := range []struct {
		name  string
		after time.Duration
		look  Facts
		want  Reason
	}{
		{"never seen", 0, gone, NoAuditor},
		{"active", 0, good(), ""},
		{"away for a minute, and its heart beats", time.Minute, beating, ""},
		{"away for a minute, without a beat", 0, gone, NoHeartbeat},
		{"away for longer", time.Second, gone, NoAuditor},
		{"away, but its heart beats", 0, beating, ""},
		{"at work, and its last beat is of another timeline", 0, active, HistoryChanged},
		{"away for a minute, and its beats are of another timeline", time.Minute, bent, HistoryChanged},
		{"at work, and the server was started again", 0, restarted, NoHeartbeat},
		{"at work, and it has taken its beats back", 0, doubted, NoHeartbeat},
		{"at work, and the publications are not as they were", 0, tampered, PublicationsDiffer},
	} {
		now = now.Add(step.after)
		got := ask(&m, &step.look, now)
		if got.Reason != step.want || got.Stops() != (step.want != "") || got.Stops() && got.Fix == "" {
			t.Errorf("%s: %+v, want %q", step.name, got, step.want)
		}
	}
}

// Each guard is asked with facts in which its own reason, and often others that follow from it, hold.
func TestEachReasonIsRefusedByItsOwnGuardBeforeItsConsequences(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[Reason]func(f *Facts){
		ReadOnly:     func(f *Facts) { f.readOnly = true },
		Standby:      func(f *Facts) { *f = Facts{installed: true, standby: true, required: true} },
		NotInstalled: func(f *Facts) { *f = Facts{} },
		PausedAll:    func(f *Facts) { f.halted, f.haltedAt, f.by, f.exists = true, "then", "somebody", false },
		Alarmed: func(f *Facts) {
			f.halted, f.alarmed, f.haltedAt, f.by, f.exists = true, true, "then", "the auditor", false
		},
		NoSlot:             func(f *Facts) { f.exists, f.active, f.beating, f.status, f.confirmed = false, false, false, "", 0 },
		ForeignSlot:        func(f *Facts) { f.local, f.beating = false, false },
		LostSlot:           func(f *Facts) { f.status, f.active, f.beating = "lost", false, false },
		NoAuditor:          func(f *Facts) { f.active, f.beating = false, false },
		NoHeartbeat:        func(f *Facts) { f.beating, f.difference = false, "a table is missing" },
		PublicationsDiffer: func(f *Facts) { f.difference = "a table is missing" },
		HistoryChanged:     func(f *Facts) { f.required, f.server.Timeline = false, 2 },
		"":                 func(*Facts) {},
	} {
		f := good()
		spoil(&f)
		var m Memory
		got := ask(&m, &f, time.Now())
		if got.Reason != want || (got.Verdict == Refuse) != (want != "") {
			t.Errorf("got %+v, want %q", got, want)
		}
		if err := got.Err(); (err != nil) != (want != "") {
			t.Errorf("%q as an error: %v", want, err)
		}
	}
}

func TestAClockThatJumpsAheadUnderARunningExecutorIsNotBelieved(t *testing.T) {
	t.Parallel()
	var m Memory
	server, local := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Now()
	for _, step := range []struct {
		name          string
		server, local time.Duration
		accepted      int64
		want          Reason
	}{
		{"the first look", 0, 0, 0, ""},
		{"a day later for both", 24 * time.Hour, 24 * time.Hour, 0, ""},
		{"the machine slept for a night", 10 * time.Hour, time.Second, 0, ""},
		{"twenty days in a second", 20 * 24 * time.Hour, time.Second, 0, ClockJumped},
		{"and on from there", time.Second, time.Second, 0, ClockJumped},
		{"set right again", -20 * 24 * time.Hour, time.Second, 0, ""},
		{"twenty days again", 20 * 24 * time.Hour, time.Second, 0, ClockJumped},
		{"somebody says that it is right", time.Second, time.Second, 1, ""},
		{"and on from there", time.Hour, time.Hour, 1, ""},
	} {
		server, local = server.Add(step.server), local.Add(step.local)
		f := good()
		f.clock, f.read, f.right = server, local, step.accepted
		if got := ask(&m, &f, local); got.Reason != step.want || got.Stops() != (step.want != "") {
			t.Errorf("%s: %+v, want %q", step.name, got, step.want)
		}
	}
}

func TestWithoutAnAuditNothingOfTheAuditIsAsked(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Now()
	f := Facts{installed: true, insert: 100}
	ask(&m, &f, now)
	m.Unconfirmed.Ended(now)
	if got := ask(&m, &f, now.Add(time.Hour)); got.Verdict != Go {
		t.Errorf("got %+v", got)
	}
}

// An auditor that is behind and catches up is waited for; one that does not move needs a person.
func TestAnAuditorThatIsBehindIsWaitedForWhileItAdvances(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Now()
	look := func(after time.Duration, confirmed, insert schemas.LSN) Answer {
		now = now.Add(after)
		f := good()
		f.confirmed, f.insert = confirmed, insert
		return ask(&m, &f, now)
	}
	if got := look(0, 100, 1000); got.Verdict != Go {
		t.Fatalf("at once: %+v", got)
	}
	if got := look(AuditorSilence, 200, 1000); got.Verdict != Go {
		t.Errorf("after a minute: %+v", got)
	}
	if got := look(time.Second, 300, 1000); got.Verdict != Wait || got.Reason != AuditBehind {
		t.Errorf("behind, and catching up: %+v", got)
	}
	if got := look(stallPatience, 300, 1000); got.Verdict != Refuse || got.Reason != AuditBehind {
		t.Errorf("behind, and not moving: %+v", got)
	}
	if got := look(time.Second, 1000, 2000); got.Verdict != Go {
		t.Errorf("after it caught up: %+v", got)
	}
	var alone Memory
	gone := good()
	gone.active, gone.insert = false, 1000
	ask(&alone, &gone, now)
	if got := ask(&alone, &gone, now.Add(AuditorSilence+time.Second)); got.Verdict != Refuse || got.Reason != NoAuditor {
		t.Errorf("behind, and nobody reads: %+v", got)
	}
}

// fixed is a guard that always says the same.
type fixed Answer

func (f fixed) Ask(*Question) Answer { return Answer(f) }

func TestTheStrictestAnswerCountsAndOfEqualOnesTheFirst(t *testing.T) {
	t.Parallel()
	slow := func(reason Reason, by float64) Guard {
		return fixed{Verdict: Slow, Slowdown: by, Refusal: Refusal{Reason: reason}}
	}
	stop := func(reason Reason, v Verdict) Guard { return fixed{Verdict: v, Refusal: Refusal{Reason: reason}} }
	for name, c := range map[string]struct {
		guards []Guard
		want   Reason
		by     float64
	}{
		"none":                         {nil, "", 0},
		"all go":                       {[]Guard{fixed{}, fixed{}}, "", 0},
		"one slows down":               {[]Guard{fixed{}, slow("a", 2)}, "a", 2},
		"the slowest":                  {[]Guard{slow("a", 2), slow("b", 5), slow("c", 3)}, "b", 5},
		"waiting is stricter":          {[]Guard{slow("a", 2), stop("b", Wait), slow("c", 9)}, "b", 0},
		"refusing is stricter":         {[]Guard{stop("a", Wait), stop("b", Refuse)}, "b", 0},
		"the first of two that refuse": {[]Guard{stop("a", Refuse), stop("b", Refuse)}, "a", 0},
	} {
		if got := Strictest(c.guards, &Question{}); got.Reason != c.want || got.Slowdown != c.by {
			t.Errorf("%s: %+v, want %q and %v", name, got, c.want, c.by)
		}
	}
}

// Worker A asks for the end of the log. Before its answer comes, B's batch commits above it and ends.
func TestABatchThatEndsWhileAnotherWorkerAsksIsNotTakenAsBelow(t *testing.T) {
	t.Parallel()
	var u Unconfirmed
	now := time.Now()
	u.Ended(now.Add(-time.Hour)) // A's former batch
	ticket := u.Draw()
	const answer, committed = 100, 120
	u.Ended(now) // B's, at 120
	u.Below(ticket, answer)
	u.confirm(answer)
	if _, any := u.oldest(); any {
		t.Error("A's former batch is confirmed, and still waits")
	}
	u.Below(u.Draw(), committed+10)
	u.confirm(committed - 1)
	if b, any := u.oldest(); !any || b.below <= committed || !b.at.Equal(now) {
		t.Errorf("B's batch at %d: %+v, %v; want that it waits for a position above it", committed, b, any)
	}
	u.confirm(committed + 10)
	if _, any := u.oldest(); any {
		t.Error("B's batch is confirmed, and still waits")
	}
}

// The answers of two workers may come in another order than they were given.
func TestPositionsThatArriveInAnotherOrderLoseNoBatch(t *testing.T) {
	t.Parallel()
	var u Unconfirmed
	now := time.Now()
	u.Ended(now)
	first := u.Draw()
	u.Ended(now.Add(100 * time.Millisecond))
	second := u.Draw()
	u.Below(second, 300) // covers both
	u.Below(first, 200)  // late, and nothing is left for it
	u.confirm(299)
	if b, any := u.oldest(); !any || b.below != 300 || !b.at.Equal(now) {
		t.Errorf("got %+v, %v; want 300, since the first batch", b, any)
	}
	u.confirm(300)
	if _, any := u.oldest(); any {
		t.Error("something waits beyond the last position")
	}
}

// Of positions that are kept as one the highest counts, whichever arrived last.
func TestALatePositionDoesNotLowerTheBound(t *testing.T) {
	t.Parallel()
	var u Unconfirmed
	now := time.Now()
	u.require(now, 300)
	u.Ended(now.Add(10 * time.Millisecond))
	u.Below(u.Draw(), 200)
	u.confirm(299)
	if b, any := u.oldest(); !any || b.below != 300 {
		t.Errorf("got %+v, %v; want 300", b, any)
	}
}

func TestAQuestionThatIsNeverAnsweredLosesNoBatch(t *testing.T) {
	t.Parallel()
	var u Unconfirmed
	now := time.Now()
	u.Ended(now)
	u.Draw() // and the connection is lost
	u.Below(u.Draw(), 100)
	if b, any := u.oldest(); !any || b.below != 100 {
		t.Errorf("got %+v, %v", b, any)
	}
}

func TestBatchesOfOneSecondAreKeptAsOne(t *testing.T) {
	t.Parallel()
	var u Unconfirmed
	now := time.Now()
	for i := range 1000 {
		u.Ended(now.Add(time.Duration(i) * 10 * time.Millisecond))
		u.Below(u.Draw(), schemas.LSN(100+i))
	}
	if len(u.bounds) > 11 || len(u.ended) > 0 {
		t.Errorf("ten seconds are kept as %d positions and %d batches", len(u.bounds), len(u.ended))
	}
	u.confirm(1098)
	if b, any := u.oldest(); !any || b.below != 1099 {
		t.Errorf("got %+v, %v; want the last position", b, any)
	}
}

func TestWhileTheAuditorOfTheSameProcessStartsNothingRunsAndNothingIsWrong(t *testing.T) {
	t.Parallel()
	first := good() // a first start: nobody reads the slot, and there never was a heartbeat
	first.active, first.beating = false, false
	restored, doubted, off := first, first, first
	restored.last = &identity{History: 1, Timeline: 2, System: "1"}
	doubted.doubted = true
	off.required = false
	for _, c := range []struct {
		name     string
		since    time.Duration
		facts    Facts
		compared bool
		verdict  Verdict
		reason   Reason
	}{
		{"a first start", time.Minute, first, false, Wait, AuditorStarting},
		{"it has compared, and has not written its first heartbeat", time.Minute, first, true, Wait, AuditorStarting},
		{"it takes more than a minute", time.Minute + 1, first, false, Refuse, AuditorStarting},
		{"it has compared, and nobody reads the slot", time.Minute + 1, first, true, Refuse, NoAuditor},
		{"the last heartbeat is of another server", 0, restored, false, Wait, AuditorStarting},
		{"it refuses the database", 0, doubted, false, Refuse, NoHeartbeat},
		{"a former auditor's heartbeat is valid", time.Minute, good(), false, Wait, AuditorStarting},
		{"one is valid, and it takes more than a minute", time.Minute + 1, good(), false, Refuse, AuditorStarting},
		{"it is at work", 0, good(), true, Go, ""},
		{"audit: off", 0, off, false, Go, ""},
	} {
		now, m := time.Now(), Memory{}
		m.Observe(&c.facts, m.Unconfirmed.Draw(), now.Add(-c.since))
		m.AuditorSeen = time.Time{}
		m.Unconfirmed.confirm(c.facts.insert)
		awaits := ""
		if !c.compared {
			awaits = "a broker"
		}
		got := Strictest(All(Limits{}, func() string { return awaits }), &Question{Now: now, Facts: &c.facts, Memory: &m})
		if got.Verdict != c.verdict || got.Reason != c.reason || c.verdict != Go && got.Fix == "" || got.Reason == AuditorStarting && !strings.HasSuffix(got.Detail, awaits) {
			t.Errorf("%s: %+v, want %v %q", c.name, got, c.verdict, c.reason)
		}
	}
}
