package schemas

import "slices"

// HeldBack is why due rows stay: in `lapse status`, in its JSON, and as a label of lapse_held_back. There are only these nine, so that
// an alarm can be written for each.
type HeldBack string

// The reasons, those that need a person most first. If several apply at once, the first one names it.
const (
	HeldByPause      HeldBack = "pause"      // a person paused the policy, or every deletion in the database
	HeldByClock      HeldBack = "clock"      // the server's clock jumped, or is before the last cutoff
	HeldByGuard      HeldBack = "guard"      // a guard refuses, or an error stopped the policy: audit, slot, history, a hold, a trigger, a right
	HeldByVersion    HeldBack = "held_back"  // more rows are due under a newer version than under the armed one, and no person has accepted it yet
	HeldByBreaker    HeldBack = "breaker"    // more rows were due at once than expected, and no person has accepted it yet
	HeldByQuarantine HeldBack = "quarantine" // rows could not be deleted, and wait in quarantine until they are tried again
	HeldByLock       HeldBack = "lock"       // another session has locked the rows, the table or a partition
	HeldByWindow     HeldBack = "window"     // the policy's window is closed
	HeldByLimit      HeldBack = "limit"      // max_rows_per_run or the rate allows no more rows for now
)

// HeldBackReasons are all reasons, in that order.
var HeldBackReasons = []HeldBack{
	HeldByPause, HeldByClock, HeldByGuard, HeldByVersion, HeldByBreaker, HeldByQuarantine, HeldByLock, HeldByWindow, HeldByLimit,
}

// Means is a sentence for a person.
func (h HeldBack) Means() string {
	switch h {
	case HeldByBreaker:
		return "more rows were due at once than expected, and nobody has accepted it yet"
	case HeldByVersion:
		return "more rows are due under a newer version of the policy, and nobody has accepted it yet"
	case HeldByLimit:
		return "max_rows_per_run or the rate allows no more rows for now"
	case HeldByWindow:
		return "the policy's window is closed"
	case HeldByLock:
		return "another session has locked the rows, the table or a partition"
	case HeldByQuarantine:
		return "rows could not be deleted, and wait in quarantine until they are tried again"
	case HeldByGuard:
		return "a guard refuses, or an error stopped the policy"
	case HeldByClock:
		return "the server's clock is wrong"
	case HeldByPause:
		return "somebody paused it"
	}
	return string(h)
}

// NeedsPerson reports whether the rows stay until a person acts: `lapse status` then exits with 3. late: the oldest due row is past the
// policy's latitude, and a lock or a limit that holds rows back for so long does not go away by itself.
func (h HeldBack) NeedsPerson(late bool) bool {
	if late && (h == HeldByLock || h == HeldByLimit) {
		return true
	}
	return slices.Contains([]HeldBack{HeldByBreaker, HeldByVersion, HeldByQuarantine, HeldByGuard, HeldByClock}, h)
}
