package schemas

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// StateOf returns the SQLSTATE of a server's error, "" for any other error.
func StateOf(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return ""
	}
	return server.Code
}

// PostgreSQL's SQLSTATEs that Lapse branches on, by their names in PostgreSQL's manual.
const (
	SQLStateProtocolViolation        = "08P01" // also a pooler's error for a startup parameter that it does not know
	SQLStateInvalidParameterValue    = "22023"
	SQLStateRestrictViolation        = "23001"
	SQLStateNotNullViolation         = "23502"
	SQLStateForeignKeyViolation      = "23503"
	SQLStateUniqueViolation          = "23505"
	SQLStateReadOnlyTransaction      = "25006"
	SQLStateIdleInTransactionTimeout = "25P03"
	SQLStateTransactionTimeout       = "25P04"
	SQLStateDependentObjectsStill    = "2BP01"
	SQLStateInvalidSchemaName        = "3F000"
	SQLStateDeadlockDetected         = "40P01"
	SQLStateInsufficientPrivilege    = "42501"
	SQLStateUndefinedColumn          = "42703"
	SQLStateUndefinedObject          = "42704"
	SQLStateDuplicateSchema          = "42P06"
	SQLStateDuplicateObject          = "42710"
	SQLStateAmbiguousFunction        = "42725"
	SQLStateUndefinedFunction        = "42883"
	SQLStateUndefinedTable           = "42P01"
	SQLStateInvalidColumnReference   = "42P10"
	SQLStateDuplicateTable           = "42P07" // also for an index
	SQLStateTooManyConnections       = "53300"
	SQLStateConfigurationLimit       = "53400"
	SQLStateProgramLimitExceeded     = "54000"
	SQLStateNotInPrerequisiteState   = "55000"
	SQLStateObjectInUse              = "55006"
	SQLStateLockNotAvailable         = "55P03"
	SQLStateQueryCanceled            = "57014" // by statement_timeout, or by a person
	SQLStateAdminShutdown            = "57P01"
	SQLStateCrashShutdown            = "57P02"
	SQLStateCannotConnectNow         = "57P03"
	SQLStateDatabaseDropped          = "57P04"
	SQLStateIdleSessionTimeout       = "57P05"
	SQLStateUndefinedFile            = "58P01"
	SQLStateInvalidGrantOperation    = "0LP01"
	SQLStateInternalError            = "XX000"
	SQLStateDataCorrupted            = "XX001"
	SQLStateIndexCorrupted           = "XX002"
)

// The refusals of the functions in schema lapse. Each is an error that aborts the batch's transaction: no row is deleted, and no ledger
// row stays. executor/grade.go decides what follows from each.
const (
	SQLStateIsolation  = "LP001" // the transaction is not read committed
	SQLStateGate       = "LP002" // policy version, state, hold version or cascade targets differ from the claim, or a hold of it was released
	SQLStateCutoff     = "LP003" // the cutoff is in the server's future
	SQLStateLimit      = "LP004" // the row limit is not between 1 and the policy's batch
	SQLStateTarget     = "LP005" // the leaf is not one of the policy's table
	SQLStateTriggers   = "LP006" // triggers, rules or others' functions would run inside the deletion
	SQLStateLease      = "LP007" // another worker has the shard's lease, the lease has ended, or the shard is done
	SQLStateCounts     = "LP008" // more rows left the target than the statement deleted
	SQLStateClaim      = "LP009" // the claim names another transaction, system or database
	SQLStateNoCounting = "LP010" // track_counts is off, so the counts cannot be checked
	SQLStateColumns    = "LP011" // the policy's column or key has changed since apply
	SQLStateUnseen     = "LP012" // a relation is no longer published, or not by its key
	SQLStateReplica    = "LP013" // session_replication_role is not origin, so that foreign keys would not be checked
	SQLStateHalted     = "LP014" // every deletion in the database is paused
	SQLStateNoSlot     = "LP015" // audit is required, and the slot is gone, is lost or belongs to another database
	SQLStateClockBack  = "LP016" // the server's clock is before the last cutoff
	SQLStateClockAhead = "LP017" // the server's clock is further ahead of the last cutoff than is allowed without a person's acceptance
	SQLStateNotEntered = "LP018" // no batch was entered in this transaction
	SQLStateHistory    = "LP019" // a claim or a beat is of another history or timeline, or no history was accepted on this server
	SQLStateNoBeat     = "LP020" // audit is required, and there is no recent heartbeat of an auditor for this server and history
	// SQLStatePublications: audit is required, and the publications differ from what Lapse left.
	SQLStatePublications = "LP021"
	SQLStateShape        = "LP022" // the policy's deletion function has no such shape
	SQLStateRange        = "LP023" // so many rows were inserted into the range of a batch that it would delete more than twice its limit
	SQLStateTooMany      = "LP030" // so many rows could not be deleted that the cause must be the schema, not a row
	SQLStateHold         = "LP024" // a hold's table, columns, content or rights have changed: it would match nothing
)
