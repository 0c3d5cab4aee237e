package audit

import (
	"time"

	"github.com/google/uuid"

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
)

// Set makes e the event of a change.
func (e *Event) Set(
	tx *replication.Tx, change *replication.Change, f Finding, claim *schemas.Claim, table string,
) {
	e.set(tx, change, f, claim, table)
}

// Knows makes the scribe's leaves name a history and a heartbeat.
func (s *scribe) Knows(nonce uuid.UUID, beat *Heartbeat) { s.nonce, s.beat = nonce, beat }

func (s *scribe) Origin(at Reach, keys []schemas.Key, now time.Time) *Leaf {
	return s.origin(at, keys, now)
}

func (s *scribe) Routing(at Reach, now time.Time) *Leaf { return s.routing(at, now) }

func (s *scribe) Coverage(at Reach, now time.Time) *Leaf {
	return s.coverage(at, now, exampleWitness())
}

// Beaten is the record of a heartbeat.
func (s *scribe) Beaten(tx *replication.Tx, h *Heartbeat) *Leaf {
	return s.beaten(tx, h, exampleWitness())
}

// Marked is the record of a marker.
func (s *scribe) Marked(m *Marker, at Reach, h *Heartbeat) *Leaf {
	return s.marked(m, at, h, exampleWitness())
}

func exampleWitness() *witness {
	return &witness{
		ancestry: replication.Ancestry{{Timeline: 1, At: 0x19C0000}},
		process:  "0198f1d0-0000-7000-8000-0000000000cc",
		ends:     []topicEnds{{topic: "lapse.deletes.system", ends: []int64{3, 4}, fences: []int64{0, 0}}, {topic: "lapse.deletes.user", ends: []int64{0, -1}, fences: []int64{0, -1}}},
	}
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

func (u *unread) Begin(at schemas.LSN)              { u.begin(at) }
func (u *unread) Reach(at schemas.LSN)              { u.reach(at) }
func (u *unread) See(end schemas.LSN, at time.Time) { u.see(end, at) }
func (u *unread) Lag(now time.Time) time.Duration   { return u.lag(now) }
