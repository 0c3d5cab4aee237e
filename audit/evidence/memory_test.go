package evidence_test

import (
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// Not parallel: allocations of other tests would be counted.
func TestAnEventLikeTheOneBeforeCostsNoMemoryInAnyFormat(t *testing.T) {
	for _, format := range allFormats {
		for _, hashed := range []bool{false, true} {
			router := evidence.NewRouter(routeOf(format), evidencetest.HashKey)
			claim, e := exampleClaim(), evidence.Event{}
			e.Set(exampleTx(), del(target, 42), evidence.Finding{Op: evidence.Delete, Cause: evidence.System}, &claim, "public.sessions")
			e.Hashed = hashed
			route := func() {
				e.Ordinal++
				router.Route(&e)
			}
			route()
			if n := testing.AllocsPerRun(100, route); n > 0 {
				t.Errorf("%s, hashed %v: an event costs %v allocations", format, hashed, n)
			}
		}
	}
}

// Not parallel, as above.
func TestAnEventWithValuesAndAJudgementCostsNoMemory(t *testing.T) {
	for _, format := range allFormats {
		a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
		router := evidence.NewRouter(routeOf(format), evidencetest.HashKey)
		a.Begin(exampleTx())
		a.Change(promising(signed(exampleClaim()), toldWide, dueWide))
		change := wideRow(longAgo)
		route := func() {
			change.Ordinal++
			a.Change(change)
			router.Route(a.Next())
			drain(a)
		}
		route()
		if n := testing.AllocsPerRun(100, route); n > 0 {
			t.Errorf("%s: an event costs %v allocations", format, n)
		}
	}
}
