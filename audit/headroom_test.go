package audit

import (
	"testing"

	"lapse/replication"
)

func TestTheHeadroomIsWhatMayStillBeKept(t *testing.T) {
	size := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		slot    replication.SlotState
		left    float64
		limited bool
	}{
		"unlimited":         {slot: replication.SlotState{Current: 100}},
		"half":              {slot: replication.SlotState{Current: 150, Restart: 50, SafeWALSize: size(100)}, left: 0.5, limited: true},
		"nothing kept":      {slot: replication.SlotState{Current: 50, Restart: 50, SafeWALSize: size(100)}, left: 1, limited: true},
		"beyond the limit":  {slot: replication.SlotState{Current: 150, SafeWALSize: size(-10)}, limited: true},
		"lost":              {slot: replication.SlotState{Current: 150, WALStatus: "lost"}, limited: true},
		"invalidated by 18": {slot: replication.SlotState{Current: 150, Invalidation: "idle_timeout"}, limited: true},
	} {
		if left, limited := headroomOf(&c.slot); left != c.left || limited != c.limited {
			t.Errorf("%s: %v, %v, want %v, %v", name, left, limited, c.left, c.limited)
		}
	}
}
