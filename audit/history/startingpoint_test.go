package history

import (
	"testing"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

func TestALogThatEndsWhereItsTimelineDoesIsNotBehindTheSlotThatBeginsThere(t *testing.T) {
	t.Parallel()
	ancestry := replication.Ancestry{{Timeline: 1, At: 100}, {Timeline: 2, At: 200}}
	reach := func(timeline schemas.Timeline, lsn schemas.LSN) evidence.Reach {
		return evidence.Reach{History: 1, Timeline: timeline, LSN: lsn}
	}
	for _, c := range []struct {
		what      string
		log, slot evidence.Reach
		behind    bool
	}{
		{"at the end of the timeline before", reach(1, 100), reach(2, 100), false},
		{"at the end of the second", reach(2, 200), reach(3, 200), false},
		{"one before that end", reach(1, 99), reach(2, 100), true},
		{"at that end, the slot above it", reach(1, 100), reach(2, 101), true},
		{"at the end of the first, the slot at that of the second", reach(1, 100), reach(3, 200), true},
		{"on the present timeline", reach(3, 250), reach(3, 251), true},
		{"equal", reach(3, 250), reach(3, 250), false},
		{"above", reach(3, 251), reach(3, 250), false},
	} {
		if got := endsBelow(c.log, c.slot, ancestry); got != c.behind {
			t.Errorf("%s: the log at %s is behind the slot at %s: %t", c.what, c.log, c.slot, got)
		}
	}
}
