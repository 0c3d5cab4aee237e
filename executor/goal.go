package executor

import (
	"time"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// goal is what the scheduler works towards, and when it stops: endless for Run, onceGoal for Once. Its methods are called
// by one worker at a time.
type goal interface {
	// listed sees a list of policies that was just read, and what the guards say. fresh reports whether what the list says
	// of a policy is still so: no turn of it was under way since. An error ends the scheduler unless it is waited out.
	listed(policies []record.InForce, a *guard.Answer, fresh func(schemas.PolicyID) bool) error
	// due says when a policy of the list is to have its next turn; false: not before another list.
	due(p *record.InForce) (at time.Time, ok bool)
	// whole says that the turn that begins is to read all of the policy's table.
	whole(p *record.InForce) bool
	// ended sees how a turn ended.
	ended(t *turn)
	// reached says that nothing is left to do.
	reached() bool
	// reread is how soon the list is read again although nothing is known to have changed.
	reread() time.Duration
	// patience is how long a server that is not there is waited for.
	patience() time.Duration
	// lastWords are what stays on record of the goal's policies when the process is gone.
	lastWords() []reportLine
	// outlasts says, and reports, that an error is waited out. lost: the connection is gone.
	outlasts(err error, lost bool) bool
}

const (
	// rereadInterval is how soon a policy that was armed, paused or changed is noticed.
	rereadInterval = 2 * time.Second
	forever        = time.Duration(0)
	notAtAll       = time.Duration(-1)
)

// endless is Run's goal: every policy has its turns at its times.
type endless struct{ *Executor }

// listed counts the turns that policies do not get.
func (e endless) listed(policies []record.InForce, a *guard.Answer, _ func(schemas.PolicyID) bool) error {
	for i := range policies {
		if at, ok := e.nextTurn(&policies[i]); ok && a.Stops() && !at.After(e.now()) {
			e.guards.skipped(&policies[i], a.Reason)
		}
	}
	return nil
}

func (e endless) due(p *record.InForce) (time.Time, bool) { return e.nextTurn(p) }
func (endless) whole(*record.InForce) bool                { return false }
func (endless) ended(*turn)                               {}
func (endless) reached() bool                             { return false }
func (endless) lastWords() []reportLine                   { return nil }
func (endless) reread() time.Duration                     { return rereadInterval }
func (endless) patience() time.Duration                   { return forever }
