package evidence_test

import (
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
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
