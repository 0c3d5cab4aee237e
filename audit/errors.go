package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"lapse/audit/kafka"
	"lapse/replication"
)

// What a caller may want to branch on. They come wrapped in a *RefusalError that says what to do.
var (
	// ErrLogMissing: the slot has been confirmed, so there was a log, and it is not in the topic. To go on would be to
	// begin a second history.
	ErrLogMissing = errors.New("the slot has been read before, and its log is not there")
	// ErrLogBehind: the slot was confirmed beyond the log's end. What lies between was never recorded: a gap.
	ErrLogBehind = errors.New("the log ends before the slot's confirmed position")
	// ErrForeignTopic: what is in a topic is not of this database, or not of Lapse.
	ErrForeignTopic = errors.New("the topic is in use by something else")
	// ErrRouteChanged: topics, partitions or slot are not those that the log was begun with.
	ErrRouteChanged = errors.New("the route is not the one in the log")
	// ErrKeyChanged: none of the tag keys is one that the log was begun with.
	ErrKeyChanged = errors.New("the tag key is not the one in the log")
	// ErrForeignTail: a partition ends with what looks like an event of this database, and the database never had it.
	ErrForeignTail = errors.New("an event in a topic is not of this database's past")
	// ErrOtherAuditor: somebody else writes the log, on another copy of the database.
	ErrOtherAuditor = errors.New("another auditor lives")
	// ErrDisorder: the stream does not come in the order that everything here rests on.
	ErrDisorder = errors.New("the stream is out of order")
)

// RefusalError says why the audit does not go on, and what to do. errors.Is finds the reason.
type RefusalError struct {
	Reason error
	Detail string
	Fix    string
}

func (e *RefusalError) Error() string {
	text := e.Reason.Error()
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

func (e *RefusalError) Unwrap() error { return e.Reason }

func refuse(reason error, detail, fix string, args ...any) error {
	return &RefusalError{Reason: reason, Detail: fmt.Sprintf(detail, args...), Fix: fix}
}

// alarmError says that a batch does not verify, and that deletion could not be stopped because of it.
type alarmError struct {
	batch uuid.UUID
	cause error
}

func (e *alarmError) Error() string {
	return fmt.Sprintf("stop every deletion, since batch %s does not verify: %v", e.batch, e.cause)
}

func (e *alarmError) Unwrap() error { return e.cause }

// How the relay ends by itself. Neither is an error that anybody outside sees.
var (
	errReached = errors.New("the end that was asked for is reached")
	errMoved   = errors.New("somebody else wrote into the topics while they were taken over")
)

// grade says what to do about an error.
type grade int

const (
	stop   grade = iota // it would happen again, or something is lost: a person must look
	reopen              // the slot has kept everything: stream again, and go on from what this process remembers
	anew                // stream again, take the topics over again, and go on from their tails
)

// gradeOf decides. A cancelled context is a stop: somebody wanted it so. Kafka's errors are asked for before PostgreSQL's:
// an auditor that took "fenced" for a broken stream would fence back, and two would publish.
func gradeOf(err error) grade {
	var alarm *alarmError
	switch {
	case errors.As(err, &alarm):
		return reopen // whatever stands in the way: it must not be passed over
	case errors.Is(err, context.Canceled):
		return stop
	case kafka.Terminal(err):
		return stop
	case errors.Is(err, kafka.ErrRestart), errors.Is(err, errMoved):
		return anew
	case replication.GradeOf(err) == replication.Retry:
		return reopen
	default:
		return stop
	}
}
