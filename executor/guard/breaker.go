package guard

import (
	"fmt"

	"lapse/planner"
)

// TooMuchDue is the reason of breaker.
const TooMuchDue Reason = "max_fraction"

// breaker refuses a policy of which more was due than its max_fraction, until somebody says yes.
type breaker struct{}

func (breaker) Ask(q *Question) Answer {
	if q.Policy == nil || q.Policy.Tripped == nil {
		return Answer{}
	}
	return Tripped(q.Policy, q.Policy.Tripped)
}

// Tripped is the answer for a policy whose breaker is open.
func Tripped(p *planner.InForce, t *planner.Trip) Answer {
	return refuse(TooMuchDue, fmt.Sprintf("policy %s: %v", p.Name, t),
		fmt.Sprintf("look at `lapse plan %s`; `lapse policy arm %s` lets these rows go", p.Name, p.Name))
}
