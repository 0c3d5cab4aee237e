package audit

import (
	"context"
	"errors"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/schemas"
)

// CheckOutcome is what the history check came to.
type CheckOutcome string

// The outcomes.
const (
	OutcomeNew      CheckOutcome = "new"      // there is no log yet
	OutcomeStraight CheckOutcome = "straight" // the database is the one that the log is of
	OutcomeGap      CheckOutcome = "gap"      // the same, and something is missing in the topics
	OutcomePromoted CheckOutcome = "promoted" // the same on another timeline, and no more was lost than may be
	OutcomeAccepted CheckOutcome = "accepted" // the database is another one, and a person has said that the log goes on with it
	OutcomeBent     CheckOutcome = "bent"     // the database is not the one that the log is of
)

// CheckResult is what the history check found. It holds positions, counts and times, nothing of any row.
type CheckResult struct {
	Outcome CheckOutcome
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

// bentError says that the database is not the one that the log is of. Nothing is published, confirmed or deleted until a
// person has decided.
type bentError struct{ Result *CheckResult }

func (e *bentError) Error() string {
	return "the log is of another past than this database: " + e.Result.Why +
		"; look at both with lapse history; if this database is the one to go on with: lapse history accept --reason TEXT"
}

// CheckHistory makes the check of a start, and returns what it found. If the database is not the one that the log is of, the
// result has the fork, and what is lost. CheckHistory writes nothing and confirms nothing, but it reads the slot: it fails
// while an auditor runs.
func CheckHistory(ctx context.Context, config Config) (*CheckResult, error) {
	a, err := New(config)
	if err != nil {
		return nil, err
	}
	client, err := kafka.NewClient(a.readerConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	opened, err := a.openStream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.stream.Close(context.WithoutCancel(ctx)) }()
	check, err := a.checkHistory(ctx, client, opened, true)
	var bent *bentError
	switch {
	case errors.As(err, &bent):
		return bent.Result, nil
	case errors.Is(err, errForeignTail):
		r := check.result
		r.Outcome, r.Why, r.ForeignTail, r.Fork = OutcomeBent, err.Error(), true, check.topics.logEnd.Reach
		return r, nil
	case err != nil:
		return nil, err
	}
	return check.result, nil
}
