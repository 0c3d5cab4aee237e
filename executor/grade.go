package executor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// Grade says how far an error reaches.
type Grade int

// The grades of an error, mildest first.
const (
	// Retry: the transaction is gone, nothing of it stays; another one will do. Its policy waits a little longer each time.
	Retry Grade = iota
	// Halve: the batch took too long, or one of its rows resists. The next batches have fewer rows: see search.
	Halve
	// StepOver: one row resists, and it is found. The next batch is that row, and enters it in the quarantine.
	StepOver
	// PutAside: somebody holds a lock on more than a row, or not even one row is found in time. The shard is put aside until
	// a later run; the other shards go on.
	PutAside
	// StopPolicy: the policy does nothing until its next scheduled time; the others go on.
	StopPolicy
	// StopProcess: nobody knows what this is, so nobody knows that going on is safe.
	StopProcess
)

// String is a label of batches_total.
func (g Grade) String() string {
	switch g {
	case Retry:
		return "retry"
	case Halve:
		return "halve"
	case StepOver:
		return "step_over"
	case PutAside:
		return "put_aside"
	case StopPolicy:
		return "stop_policy"
	default:
		return "stop_process"
	}
}

// circumstances are what a grade depends on besides the error.
type circumstances struct {
	limit    int  // rows that the batch was allowed
	stepOver bool // and it was to step over one that resists: what failed lies outside of the deletion
	trusted  bool // the policy trusts triggers, whose errors may be any
	locks    int  // batches on this shard, one after the other, that did not get a lock
	whole    bool // and somebody has all of the leaf locked, so that it is no single row's
	lost     bool // the connection is closed
	own      bool // it comes from a call for one policy, so that what nobody foresaw concerns that policy alone
}

// grade decides what follows from an error. It checks the SQLSTATE, whether the connection still
// exists and at pgconn.SafeToRetry; never at a message.
func grade(err error, c circumstances) Grade {
	var counts *batch.CountsError
	var tampered *batch.TamperedError
	var skew *run.ClockSkewError
	var jump *run.ClockJumpError
	var altered *run.SchemaChangedError
	var outdated *record.OutdatedError
	if errors.As(err, &counts) || errors.As(err, &skew) || errors.As(err, &jump) || errors.As(err, &altered) || errors.As(err, &outdated) ||
		errors.As(err, &tampered) || errors.Is(err, batch.ErrFunctionsChanged) || errors.Is(err, batch.ErrCursorLeft) {
		return StopPolicy
	}
	var changed *run.NotInForceError
	if errors.As(err, &changed) || errors.Is(err, batch.ErrNoFunction) {
		return Retry
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		if server.Code == schemas.SQLStateLockNotAvailable && c.locks >= lockTries {
			if c.whole {
				return PutAside
			}
			return resisting(c)
		}
		g := gradeOfState(server.Code, c)
		if g == StopProcess && c.own {
			return StopPolicy
		}
		return g
	}
	var connect *pgconn.ConnectError
	if c.lost || pgconn.SafeToRetry(err) || errors.As(err, &connect) {
		return Retry
	}
	return StopProcess
}

// pass reports whether a call that concerns no policy, and failed with err, may go well next time.
func (c circumstances) pass(err error) bool {
	g := grade(err, c)
	return g == Retry || g == Halve
}

// lockTries is how often a shard is tried that somebody has locked, with pauses, before it is put aside or, where not all of it is locked,
// the row that is in the way is looked for by halving.
const lockTries = 5

func gradeOfState(state string, c circumstances) Grade {
	switch state {
	case schemas.SQLStateGate, schemas.SQLStateLease,
		schemas.SQLStateHalted, schemas.SQLStateNoSlot, schemas.SQLStateNoBeat, schemas.SQLStatePublications, // the next reading of the audit says so, and how it goes on
		schemas.SQLStateHistory,                                // one was accepted, or a standby promoted, after the batch began; or the next look says so
		schemas.SQLStateCutoff,                                 // the server's clock was set back: the cutoff's instant will come
		schemas.SQLStateTarget, schemas.SQLStateUndefinedTable, // a partition is gone, and its shard goes with the next reading of the run; or the table is, which stops the policy there
		schemas.SQLStateLockNotAvailable,                                             // lock_timeout
		schemas.SQLStateRange,                                                        // rows were loaded into the range; the next batch is a pick
		schemas.SQLStateIdleInTransactionTimeout, schemas.SQLStateTransactionTimeout, // idle_in_transaction_session_timeout, transaction_timeout
		schemas.SQLStateReadOnlyTransaction,                                                                                                // read_only_sql_transaction: somebody keeps writers out
		schemas.SQLStateAdminShutdown, schemas.SQLStateCrashShutdown, schemas.SQLStateCannotConnectNow, schemas.SQLStateIdleSessionTimeout: // shut down, crashed, starting, idle_session_timeout
		return Retry
	case schemas.SQLStateTriggers, schemas.SQLStateCounts, schemas.SQLStateNoCounting,
		schemas.SQLStateColumns, schemas.SQLStateUnseen, schemas.SQLStateReplica, schemas.SQLStateShape, schemas.SQLStateTooMany, schemas.SQLStateHold:
		return StopPolicy
	case schemas.SQLStateQueryCanceled: // query_canceled: statement_timeout, or a person
		return resisting(c)
	}
	if len(state) != 5 {
		return StopProcess
	}
	switch state[:2] {
	case "08", "40", "53": // connection, rollback (deadlock, serialization), resources
		return Retry
	case "22", "23": // a value, an integrity constraint: of a row that something refers to, or of a row that refers to it
		if c.stepOver {
			return StopPolicy
		}
		return resisting(c)
	case "58", "F0", "XX": // input and output, configuration, damaged data
		return StopProcess
	}
	if c.trusted && !c.stepOver && !strings.HasPrefix(state, ours) {
		return resisting(c) // a trigger of the application's may raise any
	}
	switch state[:2] {
	case "3F", "42": // a missing schema, what is not there or not allowed
		return StopPolicy
	}
	return StopProcess
}

// resisting looks for the row that resists by halving; at one row it is found, and at one that was to be stepped over it is
// not the row that resists.
func resisting(c circumstances) Grade {
	switch {
	case c.limit > 1:
		return Halve
	case !c.stepOver:
		return StepOver
	}
	return PutAside
}

// ServerError is what is kept of an error that PostgreSQL reported. DETAIL, HINT, CONTEXT and the texts of others'
// messages carry keys and values of rows: they end here.
type ServerError struct {
	SQLState   string
	Message    string // of our own refusals only
	Table      string // schema.table
	Constraint string
	Column     string // that may not be null
	Trigger    string // in which it was raised, of Table
	Function   string // of Trigger
}

func (e *ServerError) Error() string {
	var text strings.Builder
	text.WriteString("SQLSTATE " + e.SQLState)
	for _, fact := range []struct{ name, value string }{
		{"", e.Message}, {"constraint ", e.Constraint}, {"column ", e.Column}, {"trigger ", e.Trigger}, {"table ", e.Table}, {"", e.advice()},
	} {
		if fact.value != "" {
			text.WriteString(", " + fact.name + fact.value)
		}
	}
	return text.String()
}

// advice says what a person can do about an error that stops a policy or keeps a row, "" if there is nothing to say in general.
func (e *ServerError) advice() string {
	if e.Trigger != "" {
		return run.TriggerAdvice(e.Function, e.SQLState == schemas.SQLStateQueryCanceled)
	}
	switch e.SQLState {
	case schemas.SQLStateNotNullViolation:
		return "a foreign key would set it to null: drop the column's not null, or let the foreign key say on delete cascade"
	case schemas.SQLStateQueryCanceled:
		return "it took ten times as long as limits.batch_time, or somebody canceled it: see that an index begins with the policy's column, and one with each foreign key's; a policy with ttl_column reads all rows whose column is past until it finds due ones: where that takes longer, give the table a column that holds the due time"
	case schemas.SQLStateForeignKeyViolation, schemas.SQLStateRestrictViolation:
		return "a row that is due is still referred to: let the foreign key say on delete cascade or set null, or delete what refers to it first"
	case schemas.SQLStateInsufficientPrivilege:
		return "the deletion function or the executor lost a right: run `lapse apply` again"
	case schemas.SQLStateUndefinedTable, schemas.SQLStateUndefinedColumn, schemas.SQLStateUndefinedFunction, schemas.SQLStateTarget, schemas.SQLStateColumns:
		return "the table or the function is not what it was: run `lapse apply`, and then `lapse policy arm` if that leaves the policy observing; if the table is gone for good, take the policy out of its file and run `lapse apply --prune`"
	case schemas.SQLStateUnseen:
		return "`lapse apply` publishes it again, or says what its replica identity lacks"
	case schemas.SQLStateTriggers:
		return "remove or disable them for the deleter, or drop the policy"
	case schemas.SQLStateReplica:
		return "somebody set session_replication_role for this database or login: alter role … set session_replication_role = origin"
	case schemas.SQLStateDataCorrupted, schemas.SQLStateIndexCorrupted:
		return "PostgreSQL found damaged data: see the server's log, and restore the table before anything else"
	case schemas.SQLStateTooMany:
		return "`lapse quarantine list` says what blocks each: fix the schema, then `lapse quarantine retry --all`"
	case schemas.SQLStateNoCounting:
		return "set track_counts to on"
	}
	return ""
}

// ours is the class of the deletion function's refusals. Their messages are fixed texts with names of relations.
const ours = "LP"

// stripped returns err in a form that may be logged: operation and, where PostgreSQL reported it, a ServerError.
func stripped(operation string, err error) error {
	if err == nil {
		return nil
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	kept := &ServerError{SQLState: server.Code, Constraint: server.ConstraintName}
	if strings.HasPrefix(server.Code, ours) {
		kept.Message = server.Message
	}
	if server.TableName != "" {
		kept.Table = server.SchemaName + "." + server.TableName
	}
	return fmt.Errorf("%s: %w", operation, kept)
}
