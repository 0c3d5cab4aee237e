package evidence

import (
	"lapse/replication"
	"lapse/schemas"
)

// What tests of the package's outside need from its inside.
type (
	Finding            = finding
	TransactionContent = transactionContent
)

var (
	NewClassifier = newClassifier
	ParseClaim    = parseClaim
	ParseResult   = parseResult
	Reconcile     = reconcile
	AppendText    = appendText[string]
	TableName     = tableName
	Partition     = partition
)

// Set makes e the event of a change.
func (e *Event) Set(tx *replication.Tx, change *replication.Change, f Finding, claim *schemas.Claim, table string) {
	e.set(tx, change, f, claim, table)
}

// HoldBack lets the assembler hold back the deletes that rule takes.
func (a *Assembler) HoldBack(rule func(*replication.Change, Finding) bool) { a.holds = rule }
