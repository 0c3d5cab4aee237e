package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"lapse/audit/folder"
	"lapse/audit/kafka"
	"lapse/replication"
)

// Reasons to refuse that are not part of the history check.
var (
	// errOtherEvents: new events would not follow those in the file.
	errOtherEvents = errors.New("the file cannot be gone on with")
	// errDisorder: the stream is not in commit order, on which everything here depends.
	errDisorder = errors.New("the stream is out of order")
)

// alarmError says that a batch does not verify, and that deletion could not be stopped.
type alarmError struct {
	batch uuid.UUID
	cause error
}

func (e *alarmError) Error() string {
	return fmt.Sprintf("stop every deletion, since batch %s does not verify: %v", e.batch, e.cause)
}

func (e *alarmError) Unwrap() error { return e.cause }

// How a session ends itself. Run does not return these.
var (
	errReached = errors.New("the end that was asked for is reached")
	errMoved   = errors.New("another program wrote to the topics while they were taken over")
	// errServerChanged: two openings of the stream reached two servers, or two slots.
	errServerChanged = errors.New("the server or its slot changed between two openings of the stream")
	// errPartitions: see relay.reopenStale.
	errPartitions = errors.New("there are other partitions, and PostgreSQL before 15 does not notice them while it streams")
)

// grade says what to do about an error.
type grade int

const (
	stop    grade = iota // it would happen again, or something is lost: a person must act
	reopen               // the slot has kept everything: flush what is acknowledged, then take over again
	restart              // the publisher is unusable: take over again at once
)

// gradeOf grades an error. A canceled context is a stop, because the caller wanted it. It checks for a sink's errors before PostgreSQL's: an auditor
// that took "fenced" for a broken stream would fence back, and two auditors would publish.
func gradeOf(err error) grade {
	var alarm *alarmError
	switch {
	case errors.As(err, &alarm):
		return reopen // whatever the cause: the batch must not be skipped
	case errors.Is(err, context.Canceled):
		return stop
	case kafka.Terminal(err), folder.Terminal(err):
		return stop
	case errors.Is(err, kafka.ErrRestart), errors.Is(err, errMoved), errors.Is(err, errServerChanged):
		return restart
	case errors.Is(err, errPartitions), replication.GradeOf(err) == replication.Retry:
		return reopen
	default:
		return stop
	}
}
