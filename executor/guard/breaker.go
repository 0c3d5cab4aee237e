package guard

import (
	"errors"
	"fmt"
	"slices"

	"lapse/planner/record"
)

// The reasons of breaker, by what opened it.
const (
	TooMuchDue = Reason(record.TooMuchDue)
	SuddenJump = Reason(record.SuddenJump)
	AbsurdPast = Reason(record.AbsurdPast)
)

// breaker refuses a policy that has more due than expected, or other rows, until a person allows it.
type breaker struct{}

func (breaker) Ask(q *Question) Answer {
	if q.Policy == nil || q.Policy.Tripped == nil {
		return Answer{}
	}
	return Tripped(q.Policy, q.Policy.Tripped)
}

// Tripped is the answer for a policy whose breaker is open.
func Tripped(p *record.InForce, t *record.Trip) Answer {
	return refuse(Reason(t.Cause), fmt.Sprintf("policy %s: %v", p.Name, t),
		fmt.Sprintf("see `lapse plan %s`; `lapse policy arm %s --accept N` deletes N rows, once", p.Name, p.Name))
}

// ByBreaker reports whether an error is the refusal of an open breaker.
func ByBreaker(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && slices.Contains([]Reason{TooMuchDue, SuddenJump, AbsurdPast}, r.Reason)
}
