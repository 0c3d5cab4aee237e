package schemas_test

import (
	"slices"
	"testing"

	"lapse/schemas"
)

func TestEachReasonForWhichDueRowsStaySaysWhatItMeansAndWhetherItNeedsAPerson(t *testing.T) {
	t.Parallel()
	always := []schemas.HeldBack{"breaker", "held_back", "quarantine", "guard", "clock"}
	whenLate := []schemas.HeldBack{"lock", "limit"}
	never := []schemas.HeldBack{"window", "pause"}
	if got := len(schemas.HeldBackReasons); got != len(always)+len(whenLate)+len(never) {
		t.Errorf("%d reasons", got)
	}
	for _, h := range schemas.HeldBackReasons {
		if h.Means() == string(h) {
			t.Errorf("%s does not say what it means", h)
		}
		if got, want := h.NeedsPerson(false), slices.Contains(always, h); got != want {
			t.Errorf("%s needs a person: %v", h, got)
		}
		if got, want := h.NeedsPerson(true), !slices.Contains(never, h); got != want {
			t.Errorf("%s needs a person past the latitude: %v", h, got)
		}
	}
}
