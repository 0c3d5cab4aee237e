package guard

import "fmt"

// Headroom is the reason of headroom.
const Headroom Reason = "slot_headroom"

// The shares of the slot's allowance from which batches slow down, and stop.
const (
	headroomSlow = 0.5
	headroomStop = 0.75
)

// headroom slows down, and then stops, when the log that the slot keeps comes near max_slot_wal_keep_size: beyond it PostgreSQL removes
// log that the auditor has not read. It refuses if the slot no longer advances, because waiting does not help then. Without that
// limit PostgreSQL keeps everything, and there is nothing to check.
type headroom struct{}

func (headroom) Ask(q *Question) Answer {
	f := q.Facts
	if !f.required || f.load.Safe == nil || f.load.Restart == 0 {
		return Answer{}
	}
	kept := float64(f.load.Flushed) - float64(f.load.Restart)
	used := kept / max(kept+float64(*f.load.Safe), 1)
	detail := fmt.Sprintf("replication slot %q keeps %.0f %% of the log that it may keep", f.slot, 100*used)
	const fix = "see that `lapse audit` runs and catches up, and that no transaction is open for long in any database; or raise max_slot_wal_keep_size"
	switch {
	case used < headroomSlow:
		return Answer{}
	case used < headroomStop:
		return slow(between(used, headroomSlow, headroomStop), Headroom, detail, fix)
	}
	a := refuse(Headroom, detail, fix)
	if q.Now.Sub(q.Memory.restartAt) < stallPatience {
		a.Verdict = Wait
	}
	return a
}
