package guard

import (
	"fmt"
	"time"
)

// LockWaiters is the reason of waiters.
const LockWaiters Reason = "lock_waiters"

// waitersCalm is how long batches stay slow after a session was last seen waiting: each reading sees only one instant.
const waitersCalm = 10 * time.Second

// waiters slows down while sessions of the application wait for locks that this executor's batches hold.
type waiters struct{}

func (waiters) Ask(q *Question) Answer {
	n, last := q.Facts.load.Waiting, q.Memory.waitedFor
	if last.IsZero() || q.Now.Sub(last) >= waitersCalm || q.unlimited() {
		return Answer{}
	}
	detail := "sessions have lately waited for locks of our batches"
	if n > 0 {
		detail = fmt.Sprintf("sessions that wait for locks of our batches: %d", n)
	}
	return slow(between(float64(n), 1, 5), LockWaiters, detail, "set a smaller batch: or a rate: in the policy, or a window: for hours when the application is quiet")
}
