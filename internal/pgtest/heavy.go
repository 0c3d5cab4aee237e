package pgtest

import (
	"slices"
	"testing"

	"lapse/internal/servers"
)

// Heavy are the majors for a test that costs many seconds of both cores, or that is about the program and sends a server nothing that
// other tests do not send it on every major: the newest of those given, or where LAPSE_PG leaves that out, all of the others that it asks
// for. So make test-long runs these tests on the older ones; it finds a test that calls Heavy, or a function of the package that has
// Heavy in its name (scripts/heavy-tests). Without majors, that is on the oldest, or for every third test on one between, as its name decides.
func Heavy(t testing.TB, majors ...int) []int {
	t.Helper()
	runs := of(t).runs()
	if len(majors) > 0 {
		return heaviest(runs, majors)
	}
	all, err := servers.WantedMajors("")
	if err != nil {
		t.Fatal(err)
	}
	all = drawn(all, t.Name())
	if of := heaviest(runs, all[len(all)-2:]); len(of) == 1 {
		return of
	}
	return runs[len(runs)-1:]
}

func heaviest(wanted, majors []int) []int {
	older := slices.DeleteFunc(slices.Clone(majors), func(major int) bool { return !slices.Contains(wanted, major) })
	switch newest := majors[len(majors)-1]; {
	case slices.Contains(wanted, newest):
		return []int{newest}
	case len(older) > 0:
		return older
	}
	return majors // each is a skipped subtest that says why
}
