package history

import (
	"errors"
	"fmt"
)

// Reasons to refuse, for callers that branch on them. Each comes in a *RefusalError that says what to do.
var (
	// errLogMissing: the slot was confirmed before, so there was a log, and it is not in the topic. Going on would begin a
	// second log.
	ErrLogMissing = errors.New("the slot has been read before, and its log is not there")
	// errLogBehind: the slot was confirmed beyond the log's end. What lies between was never recorded: a gap.
	ErrLogBehind = errors.New("the log ends before the slot's confirmed position")
	// errForeignTopic: a topic has records of another database, or of another program.
	ErrForeignTopic = errors.New("the topic is in use by something else")
	// errRouteChanged: topics or slot are not those of the log's routes.
	ErrRouteChanged = errors.New("the route is not the one in the log")
	// errRouteUnreadable: the record of a route is not what it says. Nobody could say what was published by it.
	ErrRouteUnreadable = errors.New("a route in the log cannot be read")
	// errHashKeyMissing: what is half in the topics has hashes under a key that is not there.
	ErrHashKeyMissing = errors.New("the hash key of the route in force is missing")
	// errRowsKeyChanged: rows of one month would be committed to under two keys.
	ErrRowsKeyChanged = errors.New("the key of a month is not the one in the log")
	// errKeyChanged: none of the tag keys is one that the log was begun with.
	ErrKeyChanged = errors.New("the tag key is not the one in the log")
	// errForeignTail: a partition ends with what looks like an event of this database, and the database never had it.
	ErrForeignTail = errors.New("an event in a topic is not of this database's past")
	// errOtherAuditor: another auditor writes the log, on another copy of the database.
	ErrOtherAuditor = errors.New("another auditor lives")
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

// anotherLog says how to go on without the log that there was.
const anotherLog = "stop the audit, drop the slot, name new topics in lapse.yaml (topics) and run lapse init --new-slot: another " +
	"log begins there, and what was deleted before it is in no evidence"

// Refuse is a RefusalError. args are those of detail.
func Refuse(reason error, detail, fix string, args ...any) error {
	return &RefusalError{Reason: reason, Detail: fmt.Sprintf(detail, args...), Fix: fix}
}
