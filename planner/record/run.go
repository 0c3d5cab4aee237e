package record

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/schemas"
)

// Quarantine counts the rows of a policy that could not be deleted.
type Quarantine struct {
	Rows    int64     `json:"rows"`
	Oldest  time.Time `json:"oldest"`   // when the first of them was tried first
	NextTry time.Time `json:"next_try"` // when the next of them is tried again
}

// String is for a person, "" if there are none.
func (q *Quarantine) String() string {
	switch q.Rows {
	case 0:
		return ""
	case 1:
		return "1 row in quarantine"
	}
	return fmt.Sprintf("%d rows in quarantine", q.Rows)
}

// Run is one policy's work up to one cutoff. Its shards are slices of the leaves.
type Run struct {
	ID        uuid.UUID
	Policy    schemas.PolicyID
	Version   schemas.PolicyVersion
	Cutoff    time.Time
	StartedAt time.Time // the server's
	Resumed   bool      // it had begun before, and is unfinished
	Shards    int       // shards that were neither done nor put aside when run.Open returned it
	Most      int64     // rows that it may delete, 0 for no limit
	Accepted  int64     // rows that a person allowed after the breaker opened; 0: none
}
