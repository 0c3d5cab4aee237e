package guard

import (
	"testing"
	"time"

	"lapse/planner/record"
	"lapse/planner/schedule"
)

func TestAClosedWindowIsWaitedOutAndNamesItsOpening(t *testing.T) {
	t.Parallel()
	w, err := schedule.ParseWindow("22:00-06:00 Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	policy := &record.InForce{Schedule: schedule.Schedule{Window: &w}}
	at := func(hour int) time.Time { return time.Date(2026, 1, 15, hour, 0, 0, 0, time.UTC) } // Berlin is an hour ahead
	for hour, open := range map[int]bool{4: true, 5: false, 12: false, 20: false, 21: true, 23: true} {
		a := window{}.Ask(&Question{Now: at(hour), Policy: policy})
		switch {
		case open && a.Verdict != Go:
			t.Errorf("at %d: %+v, want go", hour, a)
		case !open && (a.Verdict != Wait || a.Reason != WindowClosed || !a.Until.Equal(at(21))):
			t.Errorf("at %d: %+v, want to wait until it opens", hour, a)
		}
	}
	facts := good()
	var m Memory
	m.Observe(&facts, m.Unconfirmed.Draw(), at(12))
	question := Question{Now: at(12), Facts: &facts, Memory: &m}
	if a := Strictest(All(Limits{}, nil), &question); a.Verdict != Go {
		t.Errorf("for no policy: %+v", a)
	}
	question.Policy = policy
	if a := Strictest(All(Limits{}, nil), &question); a.Reason != WindowClosed {
		t.Errorf("the guard is not asked: %+v", a)
	}
	w = schedule.Window{From: w.From, To: w.To, Zone: "Nowhere/Land"} // as if this machine had lost it since the policy was read
	if a := (window{}).Ask(&Question{Now: at(12), Policy: policy}); a.Verdict != Refuse {
		t.Errorf("with a zone that cannot be read: %+v, want a refusal", a)
	}
}
