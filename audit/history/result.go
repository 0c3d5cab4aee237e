package history

import (
	"time"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// Outcome is what the history check came to.
type Outcome string

// The outcomes.
const (
	OutcomeNew      Outcome = "new"      // there is no log yet
	OutcomeStraight Outcome = "straight" // the database is the one that the log is of
	OutcomeGap      Outcome = "gap"      // the same, and something is missing in the topics
	OutcomePromoted Outcome = "promoted" // the same on another timeline, and no more was lost than may be
	OutcomeAccepted Outcome = "accepted" // the database is another one, and a person has said that the log goes on with it
	OutcomeBent     Outcome = "bent"     // the database is not the one that the log is of
)

// Result is what the history check found. It holds positions, counts and times, nothing of any row.
type Result struct {
	Outcome Outcome
	Why     string // bent: the difference between log and database; gap: what is missing

	// ForeignTail says that a topic ends with an event that this database never wrote. Nobody has restored or copied anything.
	ForeignTail bool

	LogEnd       evidence.Reach // zero without a log
	LogHeartbeat time.Time      // of the last heartbeat in the log; zero for none
	Database     evidence.Reach // the history in force, the timeline, and how far the server has written
	Slot         schemas.LSN
	ServerStart  time.Time
	Fork         evidence.Reach  // up to where both are the same; zero if nobody looked for it
	Highest      schemas.History // of log, database and topics
	Lacking      []string        // topics that lack what was acknowledged in them

	// What the log has above the fork and the database has not. Only CheckHistory counts it.
	LostTransactions uint64
	LostEvents       map[string]uint64 // by cause
	LostHeartbeats   uint64
}

// BentError says that the database is not the one that the log is of. Nothing is published, confirmed or deleted until a
// person has decided.
type BentError struct{ Result *Result }

func (e *BentError) Error() string {
	return "the log is of another past than this database: " + e.Result.Why +
		"; look at both with lapse history; if this database is the one to go on with: lapse history accept --reason TEXT"
}
