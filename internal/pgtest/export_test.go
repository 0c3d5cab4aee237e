package pgtest

import "testing"

// NewWanting is New in a test binary that is asked for these major versions and has no server at all.
func NewWanting(t testing.TB, wanted []int, major int) {
	t.Helper()
	b := &binary{wanted: wanted}
	b.install(t, major)
}

// PackagedWithoutOne is Packaged in a test binary without a packaged server.
func PackagedWithoutOne(t testing.TB) {
	t.Helper()
	b := &binary{}
	b.packagedInstall(t)
}
