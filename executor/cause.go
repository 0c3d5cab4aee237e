package executor

import (
	"errors"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// Cause names in a word or two what stops a policy. Status shows it next to the error; a run's record has it too.
type Cause string

// What stops a policy, most of it until somebody has looked.
const (
	CauseTable      Cause = "table changed"    // it is gone, renamed or another, or a foreign key takes along what apply did not see
	CauseColumns    Cause = "columns changed"  // dropped, renamed or of another type
	CauseCode       Cause = "code added"       // a trigger, rule, index expression or operator that apply did not see
	CauseUnseen     Cause = "not published"    // the audit would not see what goes
	CausePermission Cause = "permission lost"  // of the deleter or the executor
	CauseRows       Cause = "row security"     // would hide rows from the deleter
	CauseFunction   Cause = "function changed" // what would run is not what apply made
	CauseResisting  Cause = "most rows resist" // so many that the schema must be the cause
	CauseSlow       Cause = "no index"         // not even one row is found in time
	CauseClock      Cause = "clock"            // the server's is not believed
	CauseDamage     Cause = "damaged data"     // PostgreSQL says so
	CauseCounts     Cause = "counts differ"    // more went than was to go
	CauseSetting    Cause = "setting"          // track_counts or session_replication_role
	CauseOther      Cause = "an error"         // that no list names
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

// CauseOf names what an error stops a policy for.
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
