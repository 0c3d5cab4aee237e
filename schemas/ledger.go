package schemas

// LedgerSchema is the schema of the ledger's tables and of everything else that Lapse keeps in a user's database.
const LedgerSchema = "lapse"

// The tables of the ledger. The auditor receives their rows through the write-ahead log. Rows are inserted and never changed.
const (
	BatchTable     = "batch"        // what a batch says about itself before it deletes
	ResultTable    = "batch_result" // what it did
	DroppedTable   = "dropped"      // a partition that was dropped whole
	HeartbeatTable = "heartbeat"
	CoveredTable   = "covered" // which tables are published
	// QuarantineTable counts rows that enter and leave the quarantine; RestatedTable repeats what is in force if the log may have missed it.
	QuarantineTable = "quarantine_change"
	RestatedTable   = "restated"
	SnapshotTable   = "snapshot" // how much is due
)

// The tables of what is in force. The auditor receives all changes to their rows.
const (
	PolicyTable      = "policy"
	PolicyStateTable = "policy_state"
	GateTable        = "gate" // what is in force of each policy
	HaltTable        = "halt" // the switch that stops everything
	HoldTable        = "hold"
	HoldStateTable   = "hold_state"
	HoldTreeTable    = "hold_relation" // every relation that a hold ever covered
)

// LedgerTables returns the tables published in lapse_ledger: the evidence and the auditor's heartbeats. lapse.publications_trouble has the
// same list.
func LedgerTables() []string {
	return []string{BatchTable, ResultTable, DroppedTable, HeartbeatTable, CoveredTable, QuarantineTable, RestatedTable, SnapshotTable}
}

// CatalogTables returns the tables published in lapse_catalog. lapse.publications_trouble has the same list.
func CatalogTables() []string {
	return []string{PolicyTable, PolicyStateTable, GateTable, HaltTable, HoldTable, HoldStateTable, HoldTreeTable}
}
