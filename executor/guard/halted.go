package guard

import "fmt"

// PausedAll is the reason of halted.
const PausedAll Reason = "paused_all"

// halted refuses while every deletion is paused, by a person or by the auditor's alarm.
type halted struct{}

func (halted) Ask(q *Question) Answer {
	f := q.Facts
	if !f.halted {
		return Answer{}
	}
	return refuse(PausedAll, fmt.Sprintf("every deletion in this database was paused at %s UTC by %s: %q", f.haltedAt, f.by, f.why),
		"lapse resume --all --reason TEXT")
}
