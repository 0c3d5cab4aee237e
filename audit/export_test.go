package audit

import (
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// What tests of the package's outside need from its inside.
var (
	ParseClaim  = parseClaim
	ParseResult = parseResult
	Reconcile   = reconcile
	AppendText  = appendText[string]
	TableName   = tableName
	NewScribe   = newScribe
	ParseLogEnd = parseLogEnd
)

// Set makes e the event of a change.
func (e *Event) Set(
	tx *replication.Tx, change *replication.Change, f Finding, claim *schemas.Claim, table string,
) error {
	return e.set(tx, change, f, claim, table)
}

func (s *scribe) Origin(t replication.Timeline, at replication.LSN, keys []schemas.TagKey, now time.Time) *Leaf {
	return s.origin(t, at, keys, now)
}

func (s *scribe) Routing(t replication.Timeline, at replication.LSN, now time.Time) *Leaf {
	return s.routing(t, at, now)
}

func (s *scribe) Coverage(t replication.Timeline, at replication.LSN, now time.Time) *Leaf {
	return s.coverage(t, at, now)
}

func (s *scribe) Transaction(tx *replication.Tx, a *Account, v Verdict) *Leaf {
	return s.transaction(tx, a, v)
}

// Impatient shortens what the auditor waits before it says that the server is silent or not read, and looks often.
func (a *Auditor) Impatient(every, bound time.Duration) {
	a.looks.every, a.looks.silent, a.looks.unread, a.looks.again = every, bound, bound, every
}

// Unread is the type of the lag behind the server's end.
type Unread = unread

func (u *unread) Begin(at replication.LSN)              { u.begin(at) }
func (u *unread) Reach(at replication.LSN)              { u.reach(at) }
func (u *unread) See(end replication.LSN, at time.Time) { u.see(end, at) }
func (u *unread) Lag(now time.Time) time.Duration       { return u.lag(now) }
