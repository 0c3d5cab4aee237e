package evidence

import (
	"lapse/replication"
	"lapse/schemas"
)

// What tests of the package's outside need from its inside.
type Finding = finding

var (
	NewClassifier = newClassifier
	ParseClaim    = parseClaim
	ParseResult   = parseResult
	Reconcile     = reconcile
	AppendText    = appendText[string]
	AppendHex     = appendHex
	TableName     = tableName
	Partition     = partition

	ParseQualified = parseQualified

	NewDropContent = newDropContent

	ParseIdentifiers = parseIdentifiers
)

// NewTransactionContent is the only record of a transaction that touched few tables.
func NewTransactionContent(tx *replication.Tx, a *Account, verdict Verdict) *TransactionContent {
	return newTransactionContents(tx, a, verdict)[0].(*TransactionContent)
}

// NewTransactionContents makes all records of a transaction.
func NewTransactionContents(tx *replication.Tx, a *Account, verdict Verdict) []Content {
	return newTransactionContents(tx, a, verdict)
}

// Set makes e the event of a change.
func (e *Event) Set(tx *replication.Tx, change *replication.Change, f Finding, claim *schemas.Claim, table string) {
	e.set(tx, change, f, claim, table)
}

// Pair lets deletes wait where waits says so, and be one event with the change after them where join says so.
func (a *Assembler) Pair(waits func(*replication.Change, Finding) bool, join func(*Event, *replication.Change) bool) {
	a.pairs = testPairing{waits, join}
}

type testPairing struct {
	waitsFunc func(*replication.Change, finding) bool
	joinFunc  func(*Event, *replication.Change) bool
}

func (p testPairing) waits(change *replication.Change, f finding) bool { return p.waitsFunc(change, f) }

func (p testPairing) join(waiting *Event, change *replication.Change) bool {
	return p.joinFunc != nil && p.joinFunc(waiting, change)
}
