package replication

import (
	"cmp"
	"fmt"

	"lapse/schemas"
)

// Position names one row change forever. Commit positions are unique within a history and timeline, and ordinals within a transaction. The
// positions of the changes themselves are neither unique nor in order.
type Position struct {
	History  schemas.History
	Timeline schemas.Timeline
	Commit   schemas.LSN
	Ordinal  uint32
}

// Compare orders positions by history, timeline, commit and ordinal, which is the order in which a slot delivers them.
func (p Position) Compare(other Position) int {
	return cmp.Or(
		cmp.Compare(p.History, other.History),
		cmp.Compare(p.Timeline, other.Timeline),
		cmp.Compare(p.Commit, other.Commit),
		cmp.Compare(p.Ordinal, other.Ordinal),
	)
}

// String is for people: history, timeline, commit and ordinal.
func (p Position) String() string {
	return fmt.Sprintf("%d:%d:%s:%d", p.History, p.Timeline, p.Commit, p.Ordinal)
}
