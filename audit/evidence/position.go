package evidence

import (
	"cmp"
	"fmt"
)

// LogPosition is where a record of the log stands: what it reaches, and its number among the records that reach as far. The
// changes of rows have another one, replication.LogPosition.
//
// Records stand in the log in the order of their positions, each of which is there once.
type LogPosition struct {
	Reach
	Seq uint32
}

// Compare orders positions by history, timeline, position reached and number.
func (p LogPosition) Compare(other LogPosition) int {
	return cmp.Or(p.Reach.Compare(other.Reach), cmp.Compare(p.Seq, other.Seq))
}

// String is for people: history, timeline, position reached and number.
func (p LogPosition) String() string { return fmt.Sprintf("%s/%d", p.Reach, p.Seq) }
