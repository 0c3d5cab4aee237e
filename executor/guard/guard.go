package guard

import (
	"cmp"
	"time"

	"lapse/planner/record"
)

// Guard is one reason to go on, slow down, wait or refuse. It has no state.
type Guard interface {
	Ask(q *Question) Answer
}

// Limits are the settings of guards.
type Limits struct {
	// ReplicaLag is how far a standby may lag before batches slow down; at three times as much they stop. Default 10 s: far more than a
	// healthy standby lags, far less than its readers accept. Below 0: standbys are not checked.
	ReplicaLag time.Duration
	// Delayed are the application_names of standbys that lag on purpose.
	Delayed []string
	// OldSnapshot is how long a snapshot may be held before batches slow down. Default 15 minutes. Below 0: snapshots are not checked.
	OldSnapshot time.Duration
}

func (l Limits) withDefaults() Limits {
	l.ReplicaLag = cmp.Or(l.ReplicaLag, 10*time.Second)
	l.OldSnapshot = cmp.Or(l.OldSnapshot, 15*time.Minute)
	return l
}

// Question is what a guard is asked: may a batch run?
type Question struct {
	Now    time.Time
	Facts  *Facts
	Memory *Memory
	// Policy is the one whose batch is to run. Nil asks: may any batch run in this database?
	Policy *record.InForce
	// Table is the latest statistics of the policy's table; nil if they were not read.
	Table *Table
}

// unlimited reports whether the batch's policy has pace: unlimited. Limits that spare the application do not apply to it; limits that
// protect others' data do: slot headroom, and a standby that is far behind.
func (q *Question) unlimited() bool { return q.Policy != nil && q.Policy.Limits.Pace == "unlimited" }

// Verdict is the kind of an answer, mildest first.
type Verdict int

// The verdicts.
const (
	Go     Verdict = iota
	Slow           // batches run, with longer pauses
	Wait           // nothing runs until the obstacle goes by itself
	Refuse         // nothing runs until a person acts
)

// Answer is the answer of a guard.
type Answer struct {
	Verdict Verdict
	// Slowdown is how many times the batch's own time the batch and the pause after it take together. It counts only with Slow.
	Slowdown float64
	// Until is when a Wait ends by the clock alone; zero if only a later reading can end it.
	Until time.Time
	// Refusal is the reason of every answer but Go.
	Refusal
}

// Stops reports whether no batch may run.
func (a *Answer) Stops() bool { return a.Verdict >= Wait }

// Paused reports whether a person has paused every deletion: nothing is wrong, and nothing is deleted.
func (a *Answer) Paused() bool { return a.Stops() && a.Reason == PausedAll }

// Err returns the refusal of an answer that stops batches, and nil otherwise.
func (a *Answer) Err() error {
	if !a.Stops() {
		return nil
	}
	return &a.Refusal
}

func refuse(reason Reason, detail, fix string) Answer {
	return Answer{Verdict: Refuse, Refusal: Refusal{reason, detail, fix}}
}

// slow returns an answer that slows down by a factor.
func slow(by float64, reason Reason, detail, fix string) Answer {
	return Answer{Verdict: Slow, Slowdown: by, Refusal: Refusal{reason, detail, fix}}
}

// between grows from the least to the greatest slowdown while x goes from a to b.
func between(x, a, b float64) float64 {
	const least, greatest = 2, 10
	return least + (greatest-least)*min(max((x-a)/(b-a), 0), 1)
}

// Reason names why batches are slowed down or do not run: a label of skips_total and throttle_seconds_total.
type Reason string

// Refusal says why nothing is deleted in this database, and what to do about it.
type Refusal struct {
	Reason Reason
	Detail string
	Fix    string
}

// Error returns the detail and the fix.
func (r *Refusal) Error() string { return "nothing is deleted: " + r.Detail + ": " + r.Fix }

// Strictest asks every guard and returns the strictest answer. Of equally strict answers the first wins; of several that slow down, the
// slowest.
func Strictest(guards []Guard, q *Question) Answer {
	var strictest Answer
	for _, g := range guards {
		a := g.Ask(q)
		if a.Verdict > strictest.Verdict || a.Verdict == Slow && strictest.Verdict == Slow && a.Slowdown > strictest.Slowdown {
			strictest = a
		}
	}
	return strictest
}
