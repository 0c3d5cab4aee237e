package evidence

import (
	"cmp"
	"fmt"
)

// LogPosition is the place of a record in the log: its reach, and its number among the records with the same reach. Changes of rows have
// replication.Position instead.
//
// The log has its records in the order of their positions, each once.
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
