package executor

import (
	"time"

	"lapse/internal/backoff"
)

// delay says why a policy is slowed down or paused.
type delay struct {
	until     time.Time // no turn before this time: after a retry or a stop
	stopped   error     // why it was stopped; nil if it is not
	throttled string    // why batches of this run were last held back
	share     float64   // at gentle pace: the worker's share of the time when its last batch ended
}

// pauses remembers when a policy may have its next turn. Safe for concurrent use.
type pauses struct {
	shared[delay]
	backoff  backoff.Backoff
	missing  int    // consecutive attempts that found no deletion function
	lastStop string // text of the last stop, until a turn ends well
}

// retry makes the policy pause, each time a little longer, and returns for how long.
func (p *pauses) retry(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	length := p.backoff.Next()
	p.is.until = now.Add(length)
	return length
}

// missingTries is how often the executor retries, with pauses, when the deletion function of the version in force does not exist. While
// `lapse apply` replaces a version, the next list has the new one. After that many tries somebody must have dropped the function.
const missingTries = 5

// missingForGood counts an attempt that found no deletion function, and reports whether to give up.
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

// finish forgets why a run was held back, at its end.
func (p *pauses) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is.throttled, p.lastStop = "", ""
}

// stop keeps the policy from its turns until an instant, and reports whether the same error stopped it before.
func (p *pauses) stop(err error, until time.Time) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again = p.lastStop == err.Error()
	p.is.stopped, p.is.until, p.lastStop = err, until, err.Error()
	return again
}
