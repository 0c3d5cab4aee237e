package replication

import (
	"testing"

	"lapse/schemas"
)

func TestACommitBelongsToTheTimelineThatWasCurrentThere(t *testing.T) {
	t.Parallel()
	h, err := parseAncestry([]byte("1\t0/3000000\tno recovery target specified\n\n# a comment\n2\t0/5000028\tbefore 2026-01-01\n"))
	if err != nil {
		t.Fatal(err)
	}
	for position, want := range map[schemas.LSN]schemas.Timeline{
		0: 1, 0x2FFFFFF: 1, 0x3000000: 2, 0x5000027: 2, 0x5000028: 3, 0x9000000: 3,
	} {
		if got := h.TimelineOf(3, position); got != want {
			t.Errorf("%s: timeline %d, want %d", position, got, want)
		}
	}
	if got := Ancestry(nil).TimelineOf(1, 42); got != 1 {
		t.Errorf("without a history: timeline %d", got)
	}
}

func TestAHistoryThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"1", "x\t0/1", "1\t01", "2\t0/1\n1\t0/2", "1\t0/2\n2\t0/1", "1\t0/1\n1\t0/2", "-1 0/1"} {
		if h, err := parseAncestry([]byte(content)); err == nil {
			t.Errorf("%q was read as %v", content, h)
		}
	}
}
