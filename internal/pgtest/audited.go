package pgtest

import (
	"strings"
	"testing"
)

// The tables that lapse_ledger and lapse_catalog must have.
const (
	ledgerTables  = "lapse.batch, lapse.batch_result, lapse.dropped, lapse.heartbeat, lapse.covered, lapse.quarantine_change, lapse.restated, lapse.snapshot"
	catalogTables = "lapse.policy, lapse.policy_state, lapse.gate, lapse.halt, lapse.hold, lapse.hold_state, lapse.hold_relation"
)

// Publish makes the publications of a database with the catalog, with tables (schema.table) in lapse_deletes, and records
// them, as init and apply do.
func Publish(t testing.TB, db *DB, tables ...string) {
	t.Helper()
	deletes := "create publication lapse_deletes"
	if len(tables) > 0 {
		deletes += " for table " + strings.Join(tables, ", ")
	}
	db.Exec(t, deletes+" with (publish = 'delete, truncate')", PublishRest)
}

// PublishRest makes the other publications, and a first record of all of them.
const PublishRest = "create publication lapse_changes; create publication lapse_ledger for table " + ledgerTables +
	" with (publish = 'insert'); create publication lapse_catalog for table " + catalogTables + "; delete from lapse.publication; select lapse.record_publications()"

// Beat writes the auditor's beats of the next hour, one a minute, for tests in which no auditor is at work: each makes the
// audit a healthy one for the four minutes around it. They are worth nothing after a restart of the server, nor in another
// history.
func Beat(t testing.TB, db *DB) {
	t.Helper()
	db.Exec(t, Beats("clock_timestamp() + n * interval '1 minute'"))
}

// Beats is the statement that writes sixty beats, number n at the instant that at says. others, such as "timeline = 2", say
// what is to be otherwise in them.
func Beats(at string, others ...string) string {
	columns := map[string]string{
		"at": at, "system_identifier": "lapse.system_identifier()", "database_oid": "d.oid", "database": "d.datname",
		"nonce": "gen_random_uuid()", "history": "(select max(h.number) from lapse.history h)", "timeline": "lapse.timeline()",
		"server_start": "pg_postmaster_start_time()",
	}
	for _, other := range others {
		name, value, _ := strings.Cut(other, " = ")
		columns[name] = value
	}
	var names, values []string
	for name, value := range columns {
		names, values = append(names, name), append(values, value)
	}
	return "insert into lapse.heartbeat (" + strings.Join(names, ", ") + ") select " + strings.Join(values, ", ") +
		" from pg_database d, generate_series(0, 59) n where d.datname = current_database()"
}
