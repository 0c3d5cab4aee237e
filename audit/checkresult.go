package audit

import (
	"context"
	"errors"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/schemas"
)

// Standing says how the log and the database stand to each other.
type Outcome string

// The standings.
const (
	OutcomeNew      Outcome = "new"      // there is no log yet
	OutcomeStraight Outcome = "straight" // the database is the one that the log is of
	OutcomeGap      Outcome = "gap"      // it is, and between the log's end and the slot's beginning nobody has read
	OutcomePromoted Outcome = "promoted" // it is, on another timeline, and what was lost is little enough
	OutcomeAccepted Outcome = "accepted" // it is not, and a person has said that the log goes on with it
	OutcomeBent     Outcome = "bent"     // it is not
)

// Examination is what the check of Histories found. It holds positions, counts and times, nothing of any row.
type CheckResult struct {
	Outcome Outcome
	Why     string // bent: in what log and database differ

	LogEnd       evidence.Reach // zero without a log
	LogHeartbeat time.Time      // of the last heartbeat in the log; zero for none
	Database     evidence.Reach // the history in force, the timeline, and how far the server has written
	Slot         schemas.LSN
	ServerStart  time.Time
	Fork         evidence.Reach  // up to where both are the same; zero where that was not looked for
	Highest      schemas.History // of log, database and topics

	// What the log has above the fork, and this database has not. Counted by Examine only.
	LostTransactions uint64
	LostEvents       map[string]uint64 // by cause
	LostHeartbeats   uint64
}

// bentError says that the database is not the one that the log is of. Nothing is published, confirmed or deleted until a
// person has looked.
type bentError struct{ Result *CheckResult }

func (e *bentError) Error() string {
	return "the log is of another past than this database: " + e.Result.Why +
		"; look at both with lapse history; if this database is the one to go on with: lapse history accept --reason TEXT"
}

// Examine makes the check of a start, writes nothing, and says what it found, with the fork and what is lost where the
// database is not the one that the log is of. It reads the slot and confirms nothing, so no auditor may run.
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
	j, err := a.checkHistory(ctx, client, opened, true)
	var bent *bentError
	switch {
	case errors.As(err, &bent):
		return bent.Result, nil
	case errors.Is(err, ErrForeignTail):
		f := j.result
		f.Outcome, f.Why, f.Fork = OutcomeBent, err.Error(), j.past.end.Reach
		return f, nil
	case err != nil:
		return nil, err
	}
	return j.result, nil
}

// bent is the end of a start. For people it also finds out where the two pasts part.
func (j *historyCheck) refuseBent(ctx context.Context, why string) error {
	f := j.result
	f.Outcome, f.Why = OutcomeBent, why
	if !j.findFork {
		return &bentError{f}
	}
	there := func(r *evidence.LogRecord) bool {
		_, there := j.catalog.heartbeats[r.Heartbeat.Nonce]
		return there && !j.past.partial(r)
	}
	var err error
	if j.walk, err = walkBack(ctx, j.client, j.route, j.past, j.slot(), there); err != nil {
		return err
	}
	switch end := j.past.end.Reach; {
	case j.compared:
		f.Fork = j.start.lastMatch
	case !j.slotIsRemade() && !end.Below(j.slot()):
		if err := j.compareStream(ctx); err != nil && !errors.Is(err, ErrForeignTail) {
			return err
		}
		f.Fork = j.start.lastMatch
	case j.walk.beat != nil: // the slot is younger than the log's end: nothing can be compared but heartbeats
		f.Fork = j.walk.beat.Reach
	default:
		f.Fork = j.past.origin.Reach
	}
	if err := j.countLost(ctx); err != nil {
		return err
	}
	return &bentError{f}
}

// countLost counts what the log has above the fork.
func (j *historyCheck) countLost(ctx context.Context) error {
	f, w := j.result, &walk{}
	f.LostEvents = map[string]uint64{}
	return j.client.Backward(ctx, j.route.Log.Name, 0, j.past.at+1, func(rec *kafka.Record, offset int64) (bool, error) {
		record, err := logRecordOf(rec, j.route)
		if err != nil || record == nil || w.dead(offset, record) {
			return err == nil, err
		}
		if record.Kind == evidence.KindRewind {
			w.rewinds = append(w.rewinds, rewound{offset: offset, fork: record.From})
		}
		if !f.Fork.Below(record.Reach) {
			return false, nil
		}
		if record.Kind == evidence.KindTransaction {
			f.LostTransactions++
			for cause, n := range record.Events {
				f.LostEvents[cause] += n
			}
		}
		if record.Heartbeat != nil {
			f.LostHeartbeats++
		}
		return true, nil
	})
}
