package executor

import (
	"time"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// goal decides what the scheduler does and when it stops: endless for Run, onceGoal for Once. Only one worker at a time calls its
// methods.
type goal interface {
	// listed receives a list of policies just after it was read, and the guards' answer. fresh reports whether the list still holds for a
	// policy, because no turn of the policy was open since the reading began. An error ends the scheduler unless it is waited out.
	listed(policies []record.InForce, a *guard.Answer, fresh func(schemas.PolicyID) bool) error
	// due returns when a policy of the list is to have its next turn; false: not before the next list.
	due(p *record.InForce) (at time.Time, ok bool)
	// shares reports whether a policy's next turn is a look that other policies' looks may share, from a list that is not new: see worker.looks.
	shares(p *record.InForce) bool
	// whole reports whether the turn that begins must read all of the policy's table.
	whole(p *record.InForce) bool
	// ended receives a turn that has ended.
	ended(t *turn)
	// reached reports that nothing is left to do.
	reached() bool
	// reread is how soon to read the list again if nothing is known to have changed.
	reread() time.Duration
	// patience is how long to wait for a server that does not answer.
	patience() time.Duration
	// lastLines returns what stays on record about the goal's policies after the process has ended.
	lastLines() []reportLine
	// outlasts reports whether to wait out an error, and logs it if so. lost: the connection is gone.
	outlasts(err error, lost bool) bool
}

const (
	// rereadInterval bounds the time until the executor notices that a policy was armed, paused or changed.
	rereadInterval = 2 * time.Second
	forever        = time.Duration(0)
	notAtAll       = time.Duration(-1)
)

// endless is Run's goal: every policy has its turns at its times.
type endless struct{ *Executor }

// listed counts the turns that policies miss.
func (e endless) listed(policies []record.InForce, a *guard.Answer, _ func(schemas.PolicyID) bool) error {
	for i := range policies {
		if at, ok := e.nextTurn(&policies[i]); ok && a.Stops() && !at.After(e.now()) {
			e.guards.skipped(&policies[i], a.Reason)
		}
	}
	return nil
}

func (e endless) due(p *record.InForce) (time.Time, bool) { return e.nextTurn(p) }
func (e endless) shares(p *record.InForce) bool {
	return p.Unfinished == nil && p.Quarantine.Rows == 0 && e.memory(p).quiet.mayShare(e.now())
}
func (endless) whole(*record.InForce) bool { return false }
func (endless) ended(*turn)                {}
func (endless) reached() bool              { return false }
func (endless) lastLines() []reportLine    { return nil }
func (endless) reread() time.Duration      { return rereadInterval }
func (endless) patience() time.Duration    { return forever }
