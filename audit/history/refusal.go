package history

import (
	"errors"
	"fmt"
)

// Reasons to refuse, for callers that branch on them. Each comes in a *RefusalError that says what to do.
var (
	// ErrLogMissing: the slot was confirmed before, so there was a log, but it is not in the topic. To continue would begin a second log.
	ErrLogMissing = errors.New("the slot has been read before, and its log is not there")
	// ErrLogBehind: the slot was confirmed beyond the log's end. What is between was never recorded: a gap.
	ErrLogBehind = errors.New("the log ends before the slot's confirmed position")
	// ErrForeignTopic: a topic has records of another database, or of another program.
	ErrForeignTopic = errors.New("the topic is in use by something else")
	// ErrRouteChanged: topics or slot differ from those of the log's routes.
	ErrRouteChanged = errors.New("the route is not the one in the log")
	// ErrRouteUnreadable: the record of a route contradicts itself, so the events published by it could not be verified.
	ErrRouteUnreadable = errors.New("a route in the log cannot be read")
	// ErrHashKeyMissing: a transaction that is half in the topics was hashed with a key that is not configured.
	ErrHashKeyMissing = errors.New("the hash key of the route in force is missing")
	// ErrRowsKeyChanged: rows of one month would be committed to under two keys.
	ErrRowsKeyChanged = errors.New("the key of a month is not the one in the log")
	// ErrKeyChanged: none of the tag keys is one that the log was begun with.
	ErrKeyChanged = errors.New("the tag key is not the one in the log")
	// ErrForeignTail: a partition ends with an apparent event of this database that the database never had.
	ErrForeignTail = errors.New("an event in a topic is not of this database's past")
	// ErrOtherAuditor: another auditor writes the log, on another copy of the database.
	ErrOtherAuditor = errors.New("another auditor lives")
)

// RefusalError says why the audit does not continue, and what to do. errors.Is finds the reason.
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

// anotherLog says how to continue without the present log.
const anotherLog = "stop the audit, drop the slot, name new topics in lapse.yaml (topics) and run lapse init --new-slot: another " +
	"log begins there, and what was deleted before it is in no evidence"

// Refuse returns a RefusalError. args are those of detail.
func Refuse(reason error, detail, fix string, args ...any) error {
	return &RefusalError{Reason: reason, Detail: fmt.Sprintf(detail, args...), Fix: fix}
}
