package guard

import (
	"fmt"
	"time"
)

// OldSnapshot is the reason of snapshots.
const OldSnapshot Reason = "old_snapshot"

// snapshots slows down while a transaction holds a snapshot for long: VACUUM cannot remove the rows deleted meanwhile, and every reader of
// the table must skip them.
type snapshots struct{ Limits }

func (s snapshots) Ask(q *Question) Answer {
	held := time.Duration(q.Facts.load.Oldest * float64(time.Second))
	if s.OldSnapshot < 0 || held <= s.OldSnapshot || q.unlimited() {
		return Answer{}
	}
	return slow(3, OldSnapshot, fmt.Sprintf("a transaction has held its snapshot for %s, so deleted rows stay in their tables", held.Round(time.Second)),
		"`lapse doctor` names it: end it, or wait for it")
}
