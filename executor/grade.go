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

// Grade says how far the effect of an error reaches.
type Grade int

// The grades of an error, mildest first.
const (
	// Retry: the transaction is rolled back, and another may succeed. The policy pauses, each time a little longer.
	Retry Grade = iota
	// Halve: the batch took too long, or one of its rows resists. The next batches have fewer rows: see search.
	Halve
	// StepOver: the one row that resists is found. The next batch is that row, and enters it in the quarantine.
	StepOver
	// PutAside: another session locks more than a row, or not even one row is found in time. The shard is put aside until a later run;
	// the other shards go on.
	PutAside
	// StopPolicy: the policy does nothing until its next scheduled time; the others go on.
	StopPolicy
	// StopProcess: the error is unknown, so nothing shows that it is safe to continue.
	StopProcess
)

// String returns the label of batches_total.
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
	stepOver bool // the batch steps over a row that resists, so the error came from outside the deletion
	trusted  bool // the policy trusts triggers, which may raise any error
	locks    int  // consecutive batches on this shard that did not get a lock
	whole    bool // another session locks the whole leaf, not a single row
	lost     bool // the connection is closed
	own      bool // it comes from a call for one policy, so an unknown error concerns that policy alone
}

// grade decides what follows from an error. It decides by SQLSTATE, by whether the connection is open, and by pgconn.SafeToRetry; never
// by a message.
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

// pass reports whether a call that concerns no policy and failed with err may succeed next time.
func (c circumstances) pass(err error) bool {
	g := grade(err, c)
	return g == Retry || g == Halve
}

// lockTries is how often a batch on a locked shard is tried, with pauses, before the executor puts the shard aside (if the whole leaf is
// locked) or searches for the locked row by halving.
const lockTries = 5

func gradeOfState(state string, c circumstances) Grade {
	switch state {
	case schemas.SQLStateGate, schemas.SQLStateLease,
		// The next reading of the facts shows what is wrong, and what to do.
		schemas.SQLStateHalted, schemas.SQLStateNoSlot, schemas.SQLStateNoBeat, schemas.SQLStatePublications,
		// A history was accepted, or a standby promoted, after the batch began; or the next reading shows why.
		schemas.SQLStateHistory,
		// The server's clock was set back: the cutoff's instant will come.
		schemas.SQLStateCutoff,
		// A partition is gone, and the next reading of the run drops its shard; or the table is, and that reading stops the policy.
		schemas.SQLStateTarget, schemas.SQLStateUndefinedTable,
		// lock_timeout
		schemas.SQLStateLockNotAvailable,
		// Rows were loaded into the range; the next batch is a pick.
		schemas.SQLStateRange,
		schemas.SQLStateIdleInTransactionTimeout, schemas.SQLStateTransactionTimeout, schemas.SQLStateIdleSessionTimeout,
		// The server became read only.
		schemas.SQLStateReadOnlyTransaction,
		// The server is stopping, crashed or starting.
		schemas.SQLStateAdminShutdown, schemas.SQLStateCrashShutdown, schemas.SQLStateCannotConnectNow:
		return Retry
	case schemas.SQLStateTriggers, schemas.SQLStateCounts, schemas.SQLStateNoCounting,
		schemas.SQLStateColumns, schemas.SQLStateUnseen, schemas.SQLStateReplica, schemas.SQLStateShape, schemas.SQLStateTooMany, schemas.SQLStateHold:
		return StopPolicy
	case schemas.SQLStateQueryCanceled: // query_canceled: by statement_timeout, or by a person
		return resisting(c)
	}
	if len(state) != 5 {
		return StopProcess
	}
	switch state[:2] {
	case "08", "40", "53": // connection, rollback (deadlock, serialization), resources
		return Retry
	case "22", "23": // a bad value, or an integrity constraint on the row or on a row that refers to it
		if c.stepOver {
			return StopPolicy
		}
		return resisting(c)
	case "58", "F0", "XX": // input or output, configuration, damaged data
		return StopProcess
	}
	if c.trusted && !c.stepOver && !strings.HasPrefix(state, ours) {
		return resisting(c) // the application's triggers may raise any SQLSTATE
	}
	switch state[:2] {
	case "3F", "42": // an object is missing, or access is denied
		return StopPolicy
	}
	return StopProcess
}

// resisting starts or continues the search for a row that resists, by halving. A batch of one row has found it. If the batch was to step
// over that row, the row is not the cause.
func resisting(c circumstances) Grade {
	switch {
	case c.limit > 1:
		return Halve
	case !c.stepOver:
		return StepOver
	}
	return PutAside
}

// ServerError is the part of a PostgreSQL error that may leave the executor. DETAIL, HINT, CONTEXT and messages of foreign code can
// contain keys and values of rows, so it has none of them.
type ServerError struct {
	SQLState   string
	Message    string // only of the deletion function's refusals
	Table      string // schema.table
	Constraint string
	Column     string // the column that may not be null
	Trigger    string // the trigger of Table that raised it
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

// advice says what a person can do about an error that stops a policy or keeps a row; "" if no advice fits.
func (e *ServerError) advice() string {
	if e.Trigger != "" {
		return run.TriggerAdvice(e.Function, e.SQLState == schemas.SQLStateQueryCanceled)
	}
	switch e.SQLState {
	case schemas.SQLStateNotNullViolation:
		return "a foreign key would set it to null: drop the column's not null, or let the foreign key say on delete cascade"
	case schemas.SQLStateQueryCanceled:
		return "it took ten times as long as limits.batch_time, or it was canceled: see that an index begins with the policy's column, and one with each foreign key's; a policy with ttl_column reads all rows whose column is past until it finds due ones: where that takes longer, give the table a column that holds the due time"
	case schemas.SQLStateForeignKeyViolation, schemas.SQLStateRestrictViolation:
		return "a row that is due is still referred to: let the foreign key say on delete cascade or set null, or delete what refers to it first"
	case schemas.SQLStateInsufficientPrivilege:
		return "the deletion function or the executor lost a right: run `lapse apply` again"
	case schemas.SQLStateUndefinedTable, schemas.SQLStateUndefinedColumn, schemas.SQLStateUndefinedFunction, schemas.SQLStateTarget, schemas.SQLStateColumns:
		return "the table or the function is not what it was: run `lapse apply`, and then `lapse policy arm` if that leaves the policy observing; if the table is gone for good, take the policy out of its file and run `lapse apply --prune`"
	case schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateInvalidColumnReference:
		return "PostgreSQL refuses a delete so where a publication has the table and the table's replica identity does not suffice for it: `lapse doctor` names it, with the SQL that fixes it. If it names none, code that the policy trusts raised the error"
	case schemas.SQLStateUnseen:
		return "`lapse apply` publishes it again, or says what its replica identity lacks"
	case schemas.SQLStateTriggers:
		return "remove or disable them for the deleter, or drop the policy"
	case schemas.SQLStateReplica:
		return "session_replication_role is set for this database or login: alter role … set session_replication_role = origin"
	case schemas.SQLStateDataCorrupted, schemas.SQLStateIndexCorrupted:
		return "PostgreSQL found damaged data: see the server's log, and restore the table before anything else"
	case schemas.SQLStateTooMany:
		return "`lapse quarantine list` says what blocks each: fix the schema, then `lapse quarantine retry POLICY --all`"
	case schemas.SQLStateNoCounting:
		return "set track_counts to on"
	}
	return ""
}

// ours is the SQLSTATE class of the deletion function's refusals. Their messages are fixed texts with names of relations.
const ours = "LP"

// stripped returns err in a form that may be logged: the operation and, if PostgreSQL reported it, a ServerError.
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
