package schemas

// LedgerSchema is the schema that the ledger's tables are in, and everything else of Lapse's in a user's database.
const LedgerSchema = "lapse"

// The tables of the ledger: what is written there reaches the auditor through the write-ahead log. Their rows are inserted
// and never changed.
const (
	BatchTable     = "batch"        // what a batch says of itself before it deletes
	ResultTable    = "batch_result" // what it did
	DroppedTable   = "dropped"      // a partition that was dropped whole
	HeartbeatTable = "heartbeat"
	CoveredTable   = "covered" // which tables are published
	// QuarantineTable has how many rows come into the quarantine and leave it, RestatedTable what is in force where the log may have missed it.
	QuarantineTable = "quarantine_change"
	RestatedTable   = "restated"
	SnapshotTable   = "snapshot" // how much is due
)

// The tables that say what is in force. All that happens to their rows reaches the auditor, whole.
const (
	PolicyTable      = "policy"
	PolicyStateTable = "policy_state"
	GateTable        = "gate" // what is in force of each policy
	HaltTable        = "halt" // the switch that stops everything
	HoldTable        = "hold"
	HoldStateTable   = "hold_state"
	HoldTreeTable    = "hold_relation" // what each hold was ever on
)

// LedgerTables are published in lapse_ledger: the evidence, and the auditor's heartbeats. lapse.publications_trouble has them too.
func LedgerTables() []string {
	return []string{BatchTable, ResultTable, DroppedTable, HeartbeatTable, CoveredTable, QuarantineTable, RestatedTable, SnapshotTable}
}

// CatalogTables are published in lapse_catalog. lapse.publications_trouble has them too.
func CatalogTables() []string {
	return []string{PolicyTable, PolicyStateTable, GateTable, HaltTable, HoldTable, HoldStateTable, HoldTreeTable}
}
