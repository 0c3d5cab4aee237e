package executor

import (
	"time"

	"lapse/internal/backoff"
)

// delay says why a policy does not go on at full speed, or at all.
type delay struct {
	until     time.Time // it has no turn before: after a retry or a stop
	stopped   error     // why it was stopped; nil if it is not
	throttled string    // why batches were held back last in this run
	share     float64   // of the time that a worker's batches had, at gentle pace, when the last one ended
}

// pauses remembers when a policy may have its next turn. Safe for concurrent use.
type pauses struct {
	shared[delay]
	backoff  backoff.Backoff
	missing  int    // consecutive attempts that found no deletion function
	lastStop string // what was said of the last stop, until a turn ends well
}

// retry makes the policy pause, each time a little longer, and returns for how long.
func (p *pauses) retry(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	length := p.backoff.Next()
	p.is.until = now.Add(length)
	return length
}

// missingTries is how often the deletion function of the version in force is looked for, with pauses, before somebody must have dropped it:
// when `lapse apply` replaces a version, the next list has another.
const missingTries = 5

// missingForGood counts an attempt that found no deletion function, and reports whether that is no longer waited out.
func (p *pauses) missingForGood() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing++
	return p.missing >= missingTries
}

// wentWell makes the next pause a short one again.
func (p *pauses) wentWell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backoff.Reset()
	p.missing = 0
}

// finish forgets what held a run back that is over.
func (p *pauses) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is.throttled, p.lastStop = "", ""
}

// stop keeps the policy from its turns until an instant, and reports whether it was stopped by the same before.
func (p *pauses) stop(err error, until time.Time) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again = p.lastStop == err.Error()
	p.is.stopped, p.is.until, p.lastStop = err, until, err.Error()
	return again
}
