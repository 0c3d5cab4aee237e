package replication

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAPositionIsWrittenAsPostgreSQLDoes(t *testing.T) {
	t.Parallel()
	const at LSN = 0x19C2A40
	if got := at.String(); got != "0/19C2A40" {
		t.Errorf("String: %s", got)
	}
	if got := at.Hex(); got != "00000000019C2A40" {
		t.Errorf("Hex: %s", got)
	}
	if got := (Position{History: 3, Timeline: 2, Commit: at, Ordinal: 7}).String(); got != "3:2:0/19C2A40:7" {
		t.Errorf("Position: %s", got)
	}
}

func TestEveryPositionThatIsWrittenCanBeRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := LSN(rapid.Uint64().Draw(t, "lsn"))
		back, err := ParseLSN(at.String())
		if err != nil || back != at {
			t.Fatalf("%s became %s, %v", at, back, err)
		}
		var scanned LSN
		if err := scanned.Scan(strings.ToLower(at.String())); err != nil || scanned != at {
			t.Fatalf("%s was scanned as %s, %v", at, scanned, err)
		}
	})
}

func TestTextThatIsNoPositionIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "/", "0", "0/", "/0", "0/0/0", "0x1/0", "+1/0", "0/-1", "0/1_0", "123456789/0", "0/123456789", " 0/0", "G/0",
	} {
		if at, err := ParseLSN(text); err == nil {
			t.Errorf("%q was read as %s", text, at)
		}
	}
}

func TestPositionsAreStrictlyOrderedByTimelineCommitAndOrdinal(t *testing.T) {
	t.Parallel()
	position := rapid.Custom(func(t *rapid.T) Position {
		return Position{
			Timeline: Timeline(rapid.Uint32Range(1, 3).Draw(t, "timeline")),
			Commit:   LSN(rapid.Uint64Range(0, 3).Draw(t, "commit")),
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

func TestHexSortsAsPositionsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := LSN(rapid.Uint64().Draw(t, "a")), LSN(rapid.Uint64().Draw(t, "b"))
		if (a < b) != (a.Hex() < b.Hex()) {
			t.Fatalf("%s and %s", a.Hex(), b.Hex())
		}
	})
}
