package pgtest

import (
	"slices"
	"testing"
)

// Heavy are the majors for a test that costs many seconds of both cores, or that is about the program and sends a server nothing that
// other tests do not send it on every major: of those given and asked for by LAPSE_PG, the newest. make test-long runs these tests on
// the older ones; it finds them by this name, also after a helper's whose name ends so (scripts/heavy-tests).
func Heavy(t testing.TB, majors ...int) []int {
	t.Helper()
	return heaviest(of(t).runs(), majors)
}

func heaviest(wanted, majors []int) []int {
	for _, major := range slices.Backward(majors) {
		if slices.Contains(wanted, major) {
			return []int{major}
		}
	}
	return majors // each is a skipped subtest that says why
}
