package report

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
)

// Question is what a report is asked about.
type Question struct {
	From, To time.Time // half-open
	Only     []string  // names of policies; none: all
	Run      uuid.UUID // a run that is counted by itself; zero: none
}

// PeriodError says that a log cannot answer a question, and what it could answer.
type PeriodError struct{ What string }

func (e *PeriodError) Error() string { return e.What }

func noPeriod(format string, args ...any) error { return &PeriodError{fmt.Sprintf(format, args...)} }

// check refuses what is no period.
func (q *Question) check() error {
	switch {
	case q.From.IsZero() || q.To.IsZero():
		return noPeriod("the period needs a beginning and an end")
	case !q.From.Before(q.To):
		return noPeriod("the period ends at %s, and begins at %s: it must begin before it ends", At(q.To), At(q.From))
	case q.To.Sub(q.From) > longestPeriod:
		return noPeriod("the period is longer than %d years", longestPeriod/(366*24*time.Hour))
	}
	return nil
}

// longestPeriod bounds the days that a report has.
const longestPeriod = 20 * 366 * 24 * time.Hour

// clock places records in time: see Period.
type clock struct {
	now     time.Time // of the last heartbeat
	behind  bool      // it was earlier than one before it
	setBack int64
	limits  []limit // in the order of their leaves
}

// limit is a stretch of the log between two heartbeats in which a transaction names a later time than the second one, or in which the clock
// was set back.
type limit struct {
	from, to int64 // leaves
	at       time.Time
	all      bool // the clock was set back: the first heartbeat says nothing
}

const (
	nearCommits = time.Minute
	nearClock   = time.Hour
)

// place is when a record was written, and whether it names another time. A record that has no time of the database's is where the heartbeat
// before it is.
func (c *clock) place(leaf int64, r *evidence.LogRecord) (at time.Time, misdated bool) {
	if r == nil {
		return c.now, false
	}
	if r.Heartbeat != nil {
		c.beat(r.Heartbeat.At)
		return c.now, false
	}
	committed, is := r.Content.(interface{ Transaction() *evidence.Committed })
	if !is {
		return c.now, false
	}
	t := committed.Transaction().CommitTime
	for len(c.limits) > 0 && c.limits[0].to < leaf {
		c.limits = c.limits[1:]
	}
	if len(c.limits) > 0 && c.limits[0].from <= leaf && (c.limits[0].all || t.After(c.limits[0].at.Add(nearCommits))) {
		return c.limits[0].at, !c.limits[0].all
	}
	if t.Before(c.now) {
		return c.now, t.Before(c.now.Add(-nearCommits))
	}
	return t, false
}

func (c *clock) beat(t time.Time) {
	behind := t.Before(c.now.Add(-nearCommits))
	if behind && !c.behind {
		c.setBack++
	}
	c.behind = behind
	if t.After(c.now) || t.Before(c.now.Add(-nearClock)) {
		c.now, c.behind = t, false
	}
}

// Ends finds where a log begins and ends in time.
type Ends struct {
	clock  clock
	first  time.Time
	last   time.Time // of the last heartbeat
	ahead  []reached
	signed time.Time
}

// reached is a heartbeat that no checkpoint has signed yet.
type reached struct {
	leaf int64
	at   time.Time
}

// Record takes a leaf; r is nil where it cannot be read.
func (e *Ends) Record(leaf int64, r *evidence.LogRecord) {
	at, _ := e.clock.place(leaf, r)
	if e.first.IsZero() {
		e.first = at
	}
	if r != nil && r.Heartbeat != nil {
		e.last = at
		if e.ahead = append(e.ahead, reached{leaf, at}); len(e.ahead) > mostAhead {
			e.ahead = e.ahead[1:]
		}
	}
}

// mostAhead is more than any number of heartbeats between two checkpoints.
const mostAhead = 4096

// Checkpoint takes a checkpoint, once it is verified. It may come some leaves later than its last.
func (e *Ends) Checkpoint(c Checkpoint) {
	for len(e.ahead) > 0 && e.ahead[0].leaf < c.Records {
		e.signed, e.ahead = e.ahead[0].at, e.ahead[1:]
	}
}

// Last is the latest end of a period that the log can answer for; the zero time where there is none.
func (e *Ends) Last() time.Time { return e.signed }

// First is when the log's first record with a time was written.
func (e *Ends) First() time.Time { return e.first }
