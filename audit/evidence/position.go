package evidence

import (
	"cmp"
	"fmt"
)

// Position is where a record of the log stands: what it reaches, and its number among the records that reach as far. The
// changes of rows have another one, replication.Position.
//
// Records stand in the log in the order of their positions, each of which is there once.
type Position struct {
	Reach
	Seq uint32
}

// Compare orders positions by history, timeline, position reached and number.
func (p Position) Compare(other Position) int {
	return cmp.Or(p.Reach.Compare(other.Reach), cmp.Compare(p.Seq, other.Seq))
}

// String is for people: history, timeline, position reached and number.
func (p Position) String() string { return fmt.Sprintf("%s/%d", p.Reach, p.Seq) }
