package history

import (
	"time"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// Outcome is the outcome of the history check.
type Outcome string

// The outcomes.
const (
	OutcomeNew      Outcome = "new"      // there is no log yet
	OutcomeStraight Outcome = "straight" // the log belongs to the database
	OutcomeGap      Outcome = "gap"      // the same, but something is missing in the topics
	OutcomePromoted Outcome = "promoted" // the same on another timeline, and no more was lost than is allowed
	OutcomeAccepted Outcome = "accepted" // another database, but a person has accepted that the log continues with it
	OutcomeBent     Outcome = "bent"     // the log does not belong to the database
)

// Result is what the history check found. It has positions, counts and times, but no data of rows.
type Result struct {
	Outcome Outcome
	Why     string // bent: the difference between log and database; gap: what is missing

	// ForeignTail says that a topic ends with an event that this database never wrote, without any restore or copy.
	ForeignTail bool

	LogEnd       evidence.Reach // zero without a log
	LogHeartbeat time.Time      // of the last heartbeat in the log; zero for none
	Database     evidence.Reach // the history in force, the timeline, and how far the server has written
	Slot         schemas.LSN
	ServerStart  time.Time
	Fork         evidence.Reach  // position up to which both are the same; zero if it was not determined
	Highest      schemas.History // of log, database and topics
	Lacking      []string        // topics that have lost acknowledged records

	// What the log has above the fork but the database lacks. Only CheckHistory counts it.
	LostTransactions uint64
	LostEvents       map[string]uint64 // by cause
	LostHeartbeats   uint64
}

// BentError says that the log does not belong to the database. Nothing is published, confirmed or deleted until a person has decided.
type BentError struct{ Result *Result }

func (e *BentError) Error() string {
	return "the log is of another past than this database: " + e.Result.Why +
		"; look at both with lapse history; if this database is the one to go on with: lapse history accept --reason TEXT"
}
