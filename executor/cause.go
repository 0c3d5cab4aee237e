package executor

import (
	"errors"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// Cause says in a word or two what stops a policy. Status shows it next to the error, and the run's record contains it.
type Cause string

// The causes of stops. Most last until a person acts.
const (
	CauseTable      Cause = "table changed"    // it was dropped, renamed or replaced, or a foreign key deletes from a table that apply did not see
	CauseColumns    Cause = "columns changed"  // dropped, renamed or of another type
	CauseCode       Cause = "code added"       // a trigger, rule, index expression or operator that apply did not see
	CauseUnseen     Cause = "not published"    // the audit would not see what is deleted
	CausePermission Cause = "permission lost"  // of the deleter or the executor
	CauseRows       Cause = "row security"     // it would hide rows from the deleter
	CauseFunction   Cause = "function changed" // it is not the one that apply made
	CauseResisting  Cause = "most rows resist" // so many that the schema must be the cause
	CauseSlow       Cause = "no index"         // not even one row is found in time
	CauseClock      Cause = "clock"            // the server's clock is wrong
	CauseDamage     Cause = "damaged data"     // reported by PostgreSQL
	CauseCounts     Cause = "counts differ"    // more was deleted than ordered
	CauseSetting    Cause = "setting"          // track_counts or session_replication_role
	CauseOther      Cause = "an error"         // any other
)

var causes = map[string]Cause{
	schemas.SQLStateTarget: CauseTable, schemas.SQLStateUndefinedTable: CauseTable, schemas.SQLStateInvalidSchemaName: CauseTable,
	schemas.SQLStateColumns: CauseColumns, schemas.SQLStateUndefinedColumn: CauseColumns,
	schemas.SQLStateTriggers: CauseCode, schemas.SQLStateUnseen: CauseUnseen, schemas.SQLStateInsufficientPrivilege: CausePermission,
	schemas.SQLStateUndefinedFunction: CauseFunction, schemas.SQLStateTooMany: CauseResisting, schemas.SQLStateQueryCanceled: CauseSlow,
	schemas.SQLStateClockBack: CauseClock, schemas.SQLStateClockAhead: CauseClock, schemas.SQLStateCounts: CauseCounts,
	schemas.SQLStateDataCorrupted: CauseDamage, schemas.SQLStateIndexCorrupted: CauseDamage,
	schemas.SQLStateNoCounting: CauseSetting, schemas.SQLStateReplica: CauseSetting,
}

// CauseOf returns why an error stops a policy.
func CauseOf(err error) Cause {
	var altered *run.SchemaChangedError
	var tampered *batch.TamperedError
	var outdated *record.OutdatedError
	var skew *run.ClockSkewError
	var jump *run.ClockJumpError
	var counts *batch.CountsError
	var blind *record.RowSecurityError
	switch {
	case errors.As(err, &blind):
		return CauseRows
	case errors.As(err, &altered):
		if c := causes[altered.State]; c != "" {
			return c
		}
		return CauseTable
	case errors.As(err, &tampered), errors.As(err, &outdated), errors.Is(err, batch.ErrFunctionsChanged), errors.Is(err, batch.ErrCursorLeft):
		return CauseFunction
	case errors.As(err, &skew), errors.As(err, &jump):
		return CauseClock
	case errors.As(err, &counts):
		return CauseCounts
	}
	state := schemas.StateOf(err)
	var server *ServerError
	if errors.As(err, &server) {
		state = server.SQLState
	}
	if c := causes[state]; c != "" {
		return c
	}
	return CauseOther
}
