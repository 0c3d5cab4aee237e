package guard

import (
	"fmt"
	"time"
)

// ClockJumped is the reason of clock.
const ClockJumped Reason = "clock_jumped"

// clockJump is by how much the server's clock may get ahead of this process's clock between two checks. Smaller jumps also happen when a
// machine sleeps for a night.
const clockJump = 24 * time.Hour

// believed remembers the server's clock when it was last trusted.
type believed struct {
	clock, read time.Time
	right       int64
	ahead       time.Duration // by how much it has jumped ahead since; 0: not
}

// see compares the server's clock with the time that has passed for this process. A clock is trusted again once it is back in range, or
// once a person accepts it (`lapse clock accept`).
func (b *believed) see(f *Facts) {
	if !b.read.IsZero() && f.right == b.right {
		if ahead := f.clock.Sub(b.clock) - f.read.Sub(b.read); ahead > clockJump {
			b.ahead = ahead
			return
		}
	}
	*b = believed{clock: f.clock, read: f.read, right: f.right}
}

// clock refuses if the server's clock jumped ahead while this process ran, because all rows in the jump would be deleted. A jump while
// no process ran is detected from cutoffs and heartbeats: see lapse.measure.
type clock struct{}

func (clock) Ask(q *Question) Answer {
	b := &q.Memory.clock
	if b.ahead == 0 {
		return Answer{}
	}
	return refuse(ClockJumped, fmt.Sprintf("the server's clock jumped ahead by %s", b.ahead.Round(time.Hour)),
		"set the server's clock right; if it is right, run `lapse clock accept --reason TEXT`")
}
