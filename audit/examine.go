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
type Standing string

// The standings.
const (
	StandingNew      Standing = "new"      // there is no log yet
	StandingStraight Standing = "straight" // the database is the one that the log is of
	StandingBehind   Standing = "gap"      // it is, and between the log's end and the slot's beginning nobody has read
	StandingPromoted Standing = "promoted" // it is, on another timeline, and what was lost is little enough
	StandingAccepted Standing = "accepted" // it is not, and a person has said that the log goes on with it
	StandingBent     Standing = "bent"     // it is not
)

// Examination is what the check of Histories found. It holds positions, counts and times, nothing of any row.
type Examination struct {
	Standing Standing
	Why      string // bent: in what log and database differ

	LogEnd      evidence.Reach // zero without a log
	LogBeat     time.Time      // of the last heartbeat in the log; zero for none
	Database    evidence.Reach // the history in force, the timeline, and how far the server has written
	Slot        schemas.LSN
	ServerStart time.Time
	Fork        evidence.Reach  // up to where both are the same; zero where that was not looked for
	Highest     schemas.History // of log, database and topics

	// What the log has above the fork, and this database has not. Counted by Examine only.
	LostTransactions uint64
	LostEvents       map[string]uint64 // by cause
	LostBeats        uint64
}

// BentError says that the database is not the one that the log is of. Nothing is published, confirmed or deleted until a
// person has looked.
type BentError struct{ Examination *Examination }

func (e *BentError) Error() string {
	return "the log is of another past than this database: " + e.Examination.Why +
		"; look at both with lapse history; if this database is the one to go on with: lapse history accept --reason TEXT"
}

// Examine makes the check of a start, writes nothing, and says what it found, with the fork and what is lost where the
// database is not the one that the log is of. It reads the slot and confirms nothing, so no auditor may run.
func Examine(ctx context.Context, config Config) (*Examination, error) {
	a, err := New(config)
	if err != nil {
		return nil, err
	}
	client, err := kafka.NewClient(a.clientConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	opened, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.stream.Close(context.WithoutCancel(ctx)) }()
	j, err := a.judge(ctx, client, opened, true)
	var bent *BentError
	switch {
	case errors.As(err, &bent):
		return bent.Examination, nil
	case errors.Is(err, ErrForeignTail):
		f := j.finding
		f.Standing, f.Why, f.Fork = StandingBent, err.Error(), j.past.end.Reach
		return f, nil
	case err != nil:
		return nil, err
	}
	return j.finding, nil
}

// bent is the end of a start. For people it also finds out where the two pasts part.
func (j *judge) bent(ctx context.Context, why string) error {
	f := j.finding
	f.Standing, f.Why = StandingBent, why
	if !j.thorough {
		return &BentError{f}
	}
	there := func(r *evidence.LogRecord) bool {
		_, there := j.database.Beats[r.Heartbeat.Nonce]
		return there && !j.past.partial(r)
	}
	var err error
	if j.walk, err = walkBack(ctx, j.client, j.route, j.past, j.slot(), there); err != nil {
		return err
	}
	switch end := j.past.end.Reach; {
	case j.compared:
		f.Fork = j.start.matched
	case !j.slotMadeAnew() && !end.Below(j.slot()):
		if err := j.compare(ctx); err != nil && !errors.Is(err, ErrForeignTail) {
			return err
		}
		f.Fork = j.start.matched
	case j.walk.beat != nil: // the slot is younger than the log's end: nothing can be compared but heartbeats
		f.Fork = j.walk.beat.Reach
	default:
		f.Fork = j.past.origin.Reach
	}
	if err := j.countLost(ctx); err != nil {
		return err
	}
	return &BentError{f}
}

// countLost counts what the log has above the fork.
func (j *judge) countLost(ctx context.Context) error {
	f, w := j.finding, &walk{}
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
			f.LostBeats++
		}
		return true, nil
	})
}
