package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/planner/record"
	"lapse/schemas"
)

// Policy is a policy of the list with what executors say of it.
type Policy struct {
	Line
	Work []Process `json:"work,omitempty"`
	// Comes says what its next run waits for: see judge. Where that is a person, NextRun is none.
	Comes Comes `json:"next_is,omitempty"`
}

// Comes is what an armed policy's next run waits for.
type Comes string

const (
	comesRuns      Comes = "running"   // nothing: an executor is at work on it
	comesDue       Comes = "due"       // an executor's turn for it
	comesScheduled Comes = "scheduled" // its time, or its window
	comesRetry     Comes = "retry"     // something was in the way, and it is tried again
	comesWaits     Comes = "waits"     // the executors say why, and for nobody's word
	comesPerson    Comes = "person"    // somebody's word or work
)

// The states of what executors are at, as they say them.
const (
	workDeletes = "deleting"
	workSlow    = "slow"
	workStopped = "stopped"
	workWaits   = "waiting"
)

// works reports whether a process had batches of the policy when it said something last.
func (p *Process) works() bool { return p.State == workDeletes || p.State == workSlow }

// judge says what an armed policy's next run waits for, and for how long it has been late. What an executor said that has been silent
// since counts only where it may still have a shard of a policy that is not paused: of one that is, somebody stopped it, and nobody waits for the shard.
func (p *Policy) judge(s *Status) {
	var work []Process
	for _, w := range p.Work {
		if w.Silent == 0 || w.works() && p.State != schemas.Paused {
			work = append(work, w)
		}
	}
	p.Work = work
	if p.asks() {
		p.Lag = max(p.Lag, s.At.Sub(*p.TrippedAt).Seconds()) // it was due when it was stopped
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
		// It was due when it was tried: a look that finds nothing due is not on record at once, and what is in the way is not.
		p.Lag = max(p.Lag, s.At.Sub(held.Since).Seconds())
		p.Comes = comesWaits
		if held.NextTry != nil {
			p.Comes, p.Next = comesRetry, held.NextTry
		}
	case p.Comes == comesDue && s.waits():
		p.Comes = comesWaits
	}
}

// runs reports whether an executor is at work on the policy.
func (p *Policy) runs() bool {
	return slices.ContainsFunc(p.Work, func(w Process) bool { return w.works() && w.Silent == 0 })
}

// heldUp is the executor that says for the longest time that the policy is stopped or waits; nil where one is at work on it, or none
// says so. A policy whose window is closed is not held up: that is its schedule.
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

// waits reports whether each executor says that none of its batches may run.
func (s *Status) waits() bool {
	runs := s.Running()
	return len(runs) > 0 && !slices.ContainsFunc(runs, func(e *Process) bool { return e.State != workWaits })
}

// Person is what the next run of an armed policy waits for where that is a person, "" where it is not.
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

// NextText is the text of the table.
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

// asks reports whether the policy would delete, and its breaker stopped it.
func (l *Line) asks() bool { return l.State == schemas.Armed && l.Tripped != "" }

// StateText is the policy's state, and that its breaker stopped it: nothing else tells that from one that runs where no executor is there
// to say so.
func (l *Line) StateText() string {
	if l.asks() {
		return string(l.State) + ", " + workStopped
	}
	return string(l.State)
}

// StateText is the policy's, with what executors do about it. That one waits for a policy which its breaker stopped is no news.
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

// Remarks are the list's notes with what executors say. What several say in the same words is said once.
func (p *Policy) Remarks() []string {
	var remarks []string
	if p.Reason != "" && p.State != "armed" {
		remarks = append(remarks, string(p.State)+": "+p.Reason)
	}
	said := map[string]bool{}
	for i := range p.Work {
		w, text := &p.Work[i], ""
		switch {
		case w.HeldBack != "" && w.Silent == 0 && p.staysBy(w.HeldBack): // the notes say it
		case p.Comes == comesPerson && !w.works(): // the notes say it, and who is to act
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

// WithoutName returns a message about a policy without the name in front, for places that show the name already.
func WithoutName(policy schemas.PolicyName, text string) string {
	for {
		rest, named := strings.CutPrefix(text, "policy "+string(policy)+": ")
		if !named {
			return text
		}
		text = rest
	}
}

// LastText says how long ago the last run began, or the last look where nothing was due, and which rows the run had.
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

// LagText is for how long a run has been due, for the table.
func (p *Policy) LagText() string {
	switch {
	case p.Lag > 0:
		return Short(time.Duration(p.Lag * float64(time.Second)))
	case p.Next == nil:
		return "-"
	}
	return "none"
}

// silent is for how long a process has said nothing, for a person.
func (p *Process) silent() string { return Short(time.Duration(p.Silent * float64(time.Second))) }
