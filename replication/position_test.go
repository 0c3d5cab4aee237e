package replication

import (
	"testing"

	"pgregory.net/rapid"

	"lapse/schemas"
)

func TestAPositionIsWrittenAsPostgreSQLDoes(t *testing.T) {
	t.Parallel()
	const at schemas.LSN = 0x19C2A40
	if got := at.String(); got != "0/19C2A40" {
		t.Errorf("String: %s", got)
	}
	if got := (Position{History: 3, Timeline: 2, Commit: at, Ordinal: 7}).String(); got != "3:2:0/19C2A40:7" {
		t.Errorf("Position: %s", got)
	}
}

func TestPositionsAreStrictlyOrderedByTimelineCommitAndOrdinal(t *testing.T) {
	t.Parallel()
	position := rapid.Custom(func(t *rapid.T) Position {
		return Position{
			Timeline: schemas.Timeline(rapid.Uint32Range(1, 3).Draw(t, "timeline")),
			Commit:   schemas.LSN(rapid.Uint64Range(0, 3).Draw(t, "commit")),
			Ordinal:  rapid.Uint32Range(0, 3).Draw(t, "ordinal"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := position.Draw(t, "a"), position.Draw(t, "b"), position.Draw(t, "c")
		if a.Compare(b) != -b.Compare(a) {
			t.Fatal("a and b are not opposite to b and a")
		}
		if (a.Compare(b) == 0) != (a == b) {
			t.Fatal("positions that differ compare equal")
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatal("a before b before c, but not a before c")
		}
		if a.Timeline < b.Timeline && a.Compare(b) >= 0 {
			t.Fatal("an older timeline does not come first")
		}
		if a.Timeline == b.Timeline && a.Commit < b.Commit && a.Compare(b) >= 0 {
			t.Fatal("an older commit does not come first")
		}
	})
}
