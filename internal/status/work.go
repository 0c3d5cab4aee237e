package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/planner/record"
	"lapse/schemas"
)

// Policy is a policy of the list with what executors report about it.
type Policy struct {
	Line
	Work []Process `json:"work,omitempty"`
	// Comes says what its next run waits for: see judge. If that is a person, NextRun is empty.
	Comes Comes `json:"next_is,omitempty"`
}

// Comes is what an armed policy's next run waits for.
type Comes string

const (
	comesRuns      Comes = "running"   // nothing: an executor works on it
	comesDue       Comes = "due"       // an executor's turn for it
	comesScheduled Comes = "scheduled" // its time, or its window
	comesRetry     Comes = "retry"     // a retry after an obstacle
	comesWaits     Comes = "waits"     // an obstacle that executors report, and that goes away by itself
	comesPerson    Comes = "person"    // a person
)

// What executors do, as they report it.
const (
	workDeletes = "deleting"
	workSlow    = "slow"
	workStopped = "stopped"
	workWaits   = "waiting"
)

// works reports whether a process had batches of the policy at its last report.
func (p *Process) works() bool { return p.State == workDeletes || p.State == workSlow }

// judge says what an armed policy's next run waits for, and how long it has been late. The report of an executor that has been silent since
// counts only if it may still have a shard of a policy that is not paused; a paused policy was stopped by a person, so nothing waits for
// the shard.
func (p *Policy) judge(s *Status) {
	var work []Process
	for _, w := range p.Work {
		if w.Silent == 0 || w.works() && p.State != schemas.Paused {
			work = append(work, w)
		}
	}
	p.Work = work
	if p.asks() {
		p.Lag = max(p.Lag, s.At.Sub(*p.TrippedAt).Seconds()) // it was due when the breaker opened
	}
	switch {
	case p.Next == nil:
		return
	case p.Person() != "":
		p.Comes, p.Next = comesPerson, nil
		return
	}
	p.Comes = comesDue
	if p.Next.After(s.At) {
		p.Comes = comesScheduled
	}
	held := p.heldUp()
	switch {
	case p.Comes == comesDue && p.runs():
		p.Comes = comesRuns
	case held != nil:
		// It was due when it was tried: only a look that finds nothing due may not be on record yet, and there was an obstacle.
		p.Lag = max(p.Lag, s.At.Sub(held.Since).Seconds())
		p.Comes = comesWaits
		if held.NextTry != nil {
			p.Comes, p.Next = comesRetry, held.NextTry
		}
	case p.Comes == comesDue && s.waits():
		p.Comes = comesWaits
	}
}

// runs reports whether an executor works on the policy.
func (p *Policy) runs() bool {
	return slices.ContainsFunc(p.Work, func(w Process) bool { return w.works() && w.Silent == 0 })
}

// heldUp is the executor that has reported for the longest time that the policy is stopped or waits; nil if one works on it, or none
// reports that. A policy whose window is closed is not held up: that is its schedule.
func (p *Policy) heldUp() (held *Process) {
	for i := range p.Work {
		switch w := &p.Work[i]; {
		case w.works():
			return nil
		case w.State != workStopped && w.State != workWaits || p.Comes == comesScheduled && w.State == workWaits:
		case held == nil || w.Since.Before(held.Since):
			held = w
		}
	}
	return held
}

// waits reports whether each executor reports that none of its batches may run.
func (s *Status) waits() bool {
	runs := s.Running()
	return len(runs) > 0 && !slices.ContainsFunc(runs, func(e *Process) bool { return e.State != workWaits })
}

// Person says which act of a person the next run of an armed policy waits for, "" if none.
func (l *Line) Person() string {
	switch {
	case l.PausedForAll:
		return "on resume"
	case l.Suspended != "":
		return "on accept"
	case l.Trouble != "":
		return "on apply"
	case l.Tripped != "":
		return "on arm"
	}
	return ""
}

// NextText is the cell of the table.
func (p *Policy) NextText(now time.Time) string {
	in := ""
	if p.Next != nil {
		in = "in " + Short(p.Next.Sub(now))
	}
	switch p.Comes {
	case comesRuns, comesDue, comesWaits:
		return string(p.Comes)
	case comesScheduled:
		return in
	case comesRetry:
		if p.Next.After(now) {
			return "retry " + in
		}
		return "retry now"
	case comesPerson:
		return p.Person()
	}
	return "-"
}

// asks reports whether the policy's breaker stopped it, so that it would delete otherwise.
func (l *Line) asks() bool { return l.State == schemas.Armed && l.Tripped != "" }

// StateText is the policy's state, and that its breaker stopped it: without an executor that reports it, nothing else shows that.
func (l *Line) StateText() string {
	if l.asks() {
		return string(l.State) + ", " + workStopped
	}
	return string(l.State)
}

// StateText is the policy's state with what executors do about it. It omits that an executor waits for a policy whose breaker stopped it.
func (p *Policy) StateText() string {
	text := p.Line.StateText()
	for i := range p.Work {
		if p.Tripped != "" && !p.Work[i].works() {
			continue
		}
		does := p.Work[i].State
		if p.Work[i].Silent > 0 {
			does += " (silent)"
		}
		if !strings.Contains(text, does) {
			text += ", " + does
		}
	}
	return text
}

// Remarks are the list's notes with what executors report. What several report in the same words is shown once.
func (p *Policy) Remarks() []string {
	var remarks []string
	if p.Reason != "" && p.State != "armed" {
		remarks = append(remarks, string(p.State)+": "+p.Reason)
	}
	said := map[string]bool{}
	for i := range p.Work {
		w, text := &p.Work[i], ""
		switch {
		case w.HeldBack != "" && w.Silent == 0 && p.staysBy(w.HeldBack): // in the notes already
		case p.Comes == comesPerson && !w.works(): // in the notes already, with who must act
		case w.Silent > 0:
			text = fmt.Sprintf("%s: executor %s has been silent for %s: if it was killed, its shards are free for others half a minute after its last batch",
				w.State, w.Holder, w.silent())
		case w.Reason != "":
			text = w.State + ": " + WithoutName(p.Policy, w.Reason)
		}
		if text != "" && !said[text] {
			remarks, said[text] = append(remarks, text), true
		}
	}
	return append(remarks, p.Notes()...)
}

// staysBy reports whether due rows of the policy stay for a reason.
func (l *Line) staysBy(reason schemas.HeldBack) bool {
	return slices.ContainsFunc(l.Stays, func(s record.Stay) bool { return s.Reason == reason })
}

// WithoutName returns a message about a policy without the name at its beginning, for places that show the name already.
func WithoutName(policy schemas.PolicyName, text string) string {
	for {
		rest, named := strings.CutPrefix(text, "policy "+string(policy)+": ")
		if !named {
			return text
		}
		text = rest
	}
}

// LastText says how long ago the last run began, or the last look if nothing was due, and how many rows the run deleted.
func (p *Policy) LastText(now time.Time) (last, rows string) {
	last, rows = "-", "-"
	if p.LastRun != nil {
		last = Short(now.Sub(p.LastRun.Started)) + " ago"
		_, rows = p.LastRun.Text()
	}
	if p.Looked != nil {
		last = "looked " + Short(now.Sub(*p.Looked)) + " ago"
	}
	return last, rows
}

// LagText is how long a run has been due, for the table.
func (p *Policy) LagText() string {
	switch {
	case p.Lag > 0:
		return Short(time.Duration(p.Lag * float64(time.Second)))
	case p.Next == nil:
		return "-"
	}
	return "none"
}

// silent is how long a process has not reported, for a person.
func (p *Process) silent() string { return Short(time.Duration(p.Silent * float64(time.Second))) }
