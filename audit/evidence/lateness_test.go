package evidence_test

import (
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

func TestHowLateARowWentIsCountedInSteps(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	at := func(late time.Duration) string { // the row is due 30 days after
		return exampleTx().CommitTime.Add(-late).AddDate(0, 0, -30).UTC().Format("2006-01-02 15:04:05.000000+00")
	}
	day := 24 * time.Hour
	last := len(schemas.LatenessSteps)
	for _, test := range []struct {
		name, lastSeen string
		step           int // -1: none
	}{
		{"when it was due", at(time.Second), 0},
		{"a minute", at(time.Minute), 0},
		{"a minute and a microsecond", at(time.Minute + time.Microsecond), 1},
		{"a day", at(day), 7},
		{"a year", at(365 * day), last - 1},
		{"a year and a microsecond", at(365*day + time.Microsecond), last},
		{"six thousand years", "4713-01-01 00:00:00+00 BC", last},
		{"before what is believed", "4714-12-31 00:00:00+00 BC", -1},
		{"never", "infinity", -1},
		{"in the future", "294276-12-31 00:00:00+00", -1},
		{"nobody knows", "yesterday", -1},
	} {
		a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
		_, outcome := assemble(a, promising(signed(claim), "", dueWide), wideRow(test.lastSeen), resultRow(claim, 1))
		var want evidence.Lateness
		if test.step >= 0 {
			want[test.step] = 1
		}
		if got := outcome.Account.Tallies[0].Late; got != want {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}

func TestABatchOfOneInstantIsOneStep(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	changes := []*replication.Change{promising(signed(claim), "", dueWide)}
	for range 1000 {
		changes = append(changes, wideRow(longAgo))
	}
	a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
	_, outcome := assemble(a, append(changes, resultRow(claim, 1000))...)
	steps, rows := 0, uint64(0)
	for _, n := range outcome.Account.Tallies[0].Late {
		if n > 0 {
			steps, rows = steps+1, rows+n
		}
	}
	if steps != 1 || rows != 1000 {
		t.Errorf("%d rows in %d steps", rows, steps)
	}
}

func TestAStepOfALaterVersionIsLeftOut(t *testing.T) {
	t.Parallel()
	var l evidence.Lateness
	if err := l.UnmarshalJSON([]byte(`{"60":3,"86399":7,"later":1,"sooner":9}`)); err != nil {
		t.Fatal(err)
	}
	want := evidence.Lateness{}
	want[0], want[len(want)-1] = 3, 1
	if l != want {
		t.Errorf("%v", l)
	}
}
