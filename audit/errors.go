package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"lapse/audit/kafka"
	"lapse/replication"
)

// Reasons to refuse, for callers that branch on them. Each comes in a *RefusalError that says what to do.
var (
	// errLogMissing: the slot was confirmed before, so there was a log, and it is not in the topic. Going on would begin a
	// second log.
	errLogMissing = errors.New("the slot has been read before, and its log is not there")
	// errLogBehind: the slot was confirmed beyond the log's end. What lies between was never recorded: a gap.
	errLogBehind = errors.New("the log ends before the slot's confirmed position")
	// errForeignTopic: a topic has records of another database, or of another program.
	errForeignTopic = errors.New("the topic is in use by something else")
	// errRouteChanged: topics or slot are not those of the log's routes.
	errRouteChanged = errors.New("the route is not the one in the log")
	// errRouteUnreadable: the record of a route is not what it says. Nobody could say what was published by it.
	errRouteUnreadable = errors.New("a route in the log cannot be read")
	// errHashKeyMissing: what is half in the topics has hashes under a key that is not there.
	errHashKeyMissing = errors.New("the hash key of the route in force is missing")
	// errKeyChanged: none of the tag keys is one that the log was begun with.
	errKeyChanged = errors.New("the tag key is not the one in the log")
	// errForeignTail: a partition ends with what looks like an event of this database, and the database never had it.
	errForeignTail = errors.New("an event in a topic is not of this database's past")
	// errOtherAuditor: another auditor writes the log, on another copy of the database.
	errOtherAuditor = errors.New("another auditor lives")
	// errOtherEvents: what would be written does not follow what a file of events has.
	errOtherEvents = errors.New("the file cannot be gone on with")
	// errDisorder: the stream does not come in commit order, on which everything here rests.
	errDisorder = errors.New("the stream is out of order")
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

func refusal(reason error, detail, fix string, args ...any) error {
	return &RefusalError{Reason: reason, Detail: fmt.Sprintf(detail, args...), Fix: fix}
}

// alarmError says that a batch does not verify, and that deletion could not be stopped for it.
type alarmError struct {
	batch uuid.UUID
	cause error
}

func (e *alarmError) Error() string {
	return fmt.Sprintf("stop every deletion, since batch %s does not verify: %v", e.batch, e.cause)
}

func (e *alarmError) Unwrap() error { return e.cause }

// How a session ends by itself. Callers of Run see neither.
var (
	errReached = errors.New("the end that was asked for is reached")
	errMoved   = errors.New("somebody else wrote into the topics while they were taken over")
	// errServerChanged: two openings of the stream reached two servers, or two slots.
	errServerChanged = errors.New("the server or its slot changed between two openings of the stream")
	// errPartitions: see relay.reopenStale.
	errPartitions = errors.New("there are other partitions, of which PostgreSQL before 15 takes no notice while it streams")
)

// grade says what to do about an error.
type grade int

const (
	stop    grade = iota // it would happen again, or something is lost: a person must look
	reopen               // the slot has kept everything: flush what is acknowledged, then take over again
	restart              // the publisher is of no use: take over again at once
)

// gradeOf decides. A cancelled context is a stop: somebody wanted it. Kafka's errors are looked for before PostgreSQL's: an
// auditor that took "fenced" for a broken stream would fence back, and two would publish.
func gradeOf(err error) grade {
	var alarm *alarmError
	switch {
	case errors.As(err, &alarm):
		return reopen // whatever the cause is: the batch must not be passed over
	case errors.Is(err, context.Canceled):
		return stop
	case kafka.Terminal(err):
		return stop
	case errors.Is(err, kafka.ErrRestart), errors.Is(err, errMoved), errors.Is(err, errServerChanged):
		return restart
	case errors.Is(err, errPartitions), replication.GradeOf(err) == replication.Retry:
		return reopen
	default:
		return stop
	}
}
