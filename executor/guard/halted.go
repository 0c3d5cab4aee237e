package guard

import "fmt"

// The reasons of halted.
const (
	PausedAll Reason = "paused_all" // by a person
	Alarmed   Reason = "alarm"      // by the auditor, because of batches that do not verify
)

// halted refuses while every deletion is paused, by a person or by the auditor's alarm.
type halted struct{}

func (halted) Ask(q *Question) Answer {
	f := q.Facts
	if !f.halted {
		return Answer{}
	}
	reason := PausedAll
	if f.alarmed {
		reason = Alarmed
	}
	return refuse(reason, fmt.Sprintf("every deletion in this database was paused at %s UTC by %s: %q", f.haltedAt, f.by, f.why),
		"lapse resume --all --reason TEXT")
}
