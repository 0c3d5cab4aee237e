package schemas

import "slices"

// HeldBack is why due rows stay: in `lapse status`, in its JSON, and as a label of lapse_held_back. There are these nine and no others, so
// that an alarm can be written for each.
type HeldBack string

// The reasons, the one that asks most of a person first: of several that hold a policy's rows back at once, the first one names it.
const (
	HeldByPause      HeldBack = "pause"      // somebody paused the policy, or every deletion in the database
	HeldByClock      HeldBack = "clock"      // the server's clock jumped, or is before the last cutoff
	HeldByGuard      HeldBack = "guard"      // a guard refuses, or an error stopped the policy: audit, slot, history, a hold, a trigger, a right
	HeldByVersion    HeldBack = "held_back"  // a newer version lets more rows fall due than the armed one, and nobody has said yes
	HeldByBreaker    HeldBack = "breaker"    // more was due at once than was to be expected, and nobody has said yes
	HeldByQuarantine HeldBack = "quarantine" // rows could not be deleted, and wait in quarantine until they are tried again
	HeldByLock       HeldBack = "lock"       // somebody has the rows, the table or a partition locked
	HeldByWindow     HeldBack = "window"     // the policy's window is closed
	HeldByLimit      HeldBack = "limit"      // max_rows_per_run or the rate let no more go for the time being
)

// HeldBackReasons are all of them, in that order.
var HeldBackReasons = []HeldBack{
	HeldByPause, HeldByClock, HeldByGuard, HeldByVersion, HeldByBreaker, HeldByQuarantine, HeldByLock, HeldByWindow, HeldByLimit,
}

// Means is one sentence for a person.
func (h HeldBack) Means() string {
	switch h {
	case HeldByBreaker:
		return "more was due at once than was to be expected, and nobody has said yes"
	case HeldByVersion:
		return "more falls due under a newer version of the policy, and nobody has said yes to it"
	case HeldByLimit:
		return "max_rows_per_run or the rate lets no more go for the time being"
	case HeldByWindow:
		return "the policy's window is closed"
	case HeldByLock:
		return "somebody has the rows, the table or a partition locked"
	case HeldByQuarantine:
		return "rows could not be deleted, and wait in quarantine until they are tried again"
	case HeldByGuard:
		return "a guard refuses, or an error stopped the policy"
	case HeldByClock:
		return "the server's clock is not to be believed"
	case HeldByPause:
		return "somebody paused it"
	}
	return string(h)
}

// NeedsPerson reports whether the rows stay until a person has done something: `lapse status` ends with 3 then. late says that the oldest
// due row is past the policy's latitude: a lock or a limit that keeps rows for that long does not pass by itself.
func (h HeldBack) NeedsPerson(late bool) bool {
	if late && (h == HeldByLock || h == HeldByLimit) {
		return true
	}
	return slices.Contains([]HeldBack{HeldByBreaker, HeldByVersion, HeldByQuarantine, HeldByGuard, HeldByClock}, h)
}
