package guard

import (
	"cmp"
	"time"

	"lapse/planner/record"
)

// Guard is one reason to go on, slow down, wait or refuse. It keeps nothing between two questions.
type Guard interface {
	Ask(q *Question) Answer
}

// Limits are what a person may set.
type Limits struct {
	// ReplicaLag is by how much a standby may lag behind before batches slow down; at three times as much they stop. Default
	// 10 s: far more than a healthy one, far less than what readers of it put up with. Less than 0: standbys are not checked.
	ReplicaLag time.Duration
	// Delayed are the application_names of standbys that lag on purpose.
	Delayed []string
	// OldSnapshot is how long a snapshot may be held before batches slow down. Default 15 minutes. Less than 0: nobody asks.
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
	// Policy is whose batch is to run. Nil: may any batch run in this database?
	Policy *record.InForce
	// Table is the latest statistics of the policy's table; nil if nobody has read them.
	Table *Table
}

// unlimited reports whether the batch is of a policy whose owner chose pace: unlimited. What spares the application does not hold
// for it; what protects others' data does: slot headroom, and a standby that is far behind.
func (q *Question) unlimited() bool { return q.Policy != nil && q.Policy.Limits.Pace == "unlimited" }

// Verdict is the kind of an answer, mildest first.
type Verdict int

// The verdicts.
const (
	Go     Verdict = iota
	Slow           // batches run, with longer pauses
	Wait           // nothing runs; it passes by itself
	Refuse         // nothing runs until a person has done something
)

// Answer is what a guard says.
type Answer struct {
	Verdict Verdict
	// Slowdown is how many times as long as the batch alone a batch and the pause after it are to take together. It counts
	// with Slow only.
	Slowdown float64
	// Until is when a Wait is over by the clock alone; zero where a later look says so.
	Until time.Time
	// Refusal is why, for everything but Go.
	Refusal
}

// Stops reports whether no batch may run.
func (a *Answer) Stops() bool { return a.Verdict >= Wait }

// Paused reports whether a person has paused every deletion: nothing is wrong, and nothing is deleted.
func (a *Answer) Paused() bool { return a.Stops() && a.Reason == PausedAll }

// Err is the refusal of an answer that stops batches, and nil otherwise.
func (a *Answer) Err() error {
	if !a.Stops() {
		return nil
	}
	return &a.Refusal
}

func refuse(reason Reason, detail, fix string) Answer {
	return Answer{Verdict: Refuse, Refusal: Refusal{reason, detail, fix}}
}

// slow slows down by so many times.
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

// Error says both.
func (r *Refusal) Error() string { return "nothing is deleted: " + r.Detail + ": " + r.Fix }

// Strictest asks every guard and returns the strictest answer. Of several that are equally strict it is the first, and of
// several that slow down the slowest.
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
