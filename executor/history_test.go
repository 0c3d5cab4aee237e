package executor

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// transaction is what the write-ahead log says that one transaction did, in order. It is what the tests believe, not the
// executor's counters: tables of the application have REPLICA IDENTITY FULL for it, so that each deleted row is seen
// with the values it had.
type transaction struct {
	xid     string
	changes []rowChange
}

// change is one row of one table.
type rowChange struct {
	table, kind string            // schema.table; INSERT, UPDATE or DELETE
	row         map[string]string // by column; NULLs are not there. Of a deleted row: what it was
}

// history reads the log from a slot.
type history struct {
	conn *pgx.Conn
	slot string
}

// record makes the slot from which the history is read. What happens before is not in it.
func recorded(t testing.TB, db *pgtest.DB) *history {
	t.Helper()
	h := &history{conn: db.Connect(t), slot: db.Name + "_history"}
	for _, sql := range []string{
		"set timezone = 'UTC'", "set datestyle = 'ISO, YMD'",
		"select pg_create_logical_replication_slot('" + h.slot + "', 'test_decoding')",
	} {
		if _, err := h.conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

var (
	changeLine = regexp.MustCompile(`(?s)^table (\S+): (INSERT|UPDATE|DELETE): (.*)$`)
	columnText = regexp.MustCompile(`(\w+)\[((?:[^\[\]]|\[\])*)\]:('(?:[^']|'')*'|\S+)`)
)

// writtenFirst are tables of the catalog that a batch writes before its ledger row. The last is published, and decides nothing for an auditor.
var writtenFirst = []string{"lapse.shard", "lapse.examined", "lapse.quarantine", "lapse.quarantine_change"}

// read returns the transactions that committed since the last read.
func (h *history) read(t testing.TB) []*transaction {
	t.Helper()
	rows, err := h.conn.Query(t.Context(), `
		select xid::text, data from pg_logical_slot_get_changes($1, null, null, 'include-xids', '0', 'skip-empty-xacts', '1')`, h.slot)
	if err != nil {
		t.Fatal(err)
	}
	var all []*transaction
	var xid, line string
	_, err = pgx.ForEachRow(rows, []any{&xid, &line}, func() error {
		if strings.HasPrefix(line, "BEGIN") {
			all = append(all, &transaction{xid: xid})
			return nil
		}
		if parts := changeLine.FindStringSubmatch(line); parts != nil && !slices.Contains(writtenFirst, parts[1]) {
			c := rowChange{table: parts[1], kind: parts[2], row: map[string]string{}}
			for _, column := range columnText.FindAllStringSubmatch(parts[3], -1) {
				if column[3] != "null" {
					c.row[column[1]] = strings.ReplaceAll(strings.Trim(column[3], "'"), "''", "'")
				}
			}
			tx := all[len(all)-1]
			tx.changes = append(tx.changes, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// deleted returns the rows that the transaction deleted from a table.
func (tx *transaction) deleted(table string) []map[string]string {
	var rows []map[string]string
	for _, c := range tx.changes {
		if c.kind == "DELETE" && c.table == table {
			rows = append(rows, c.row)
		}
	}
	return rows
}

// batch returns the ledger row that the transaction wrote, nil for a transaction of somebody else's. The ledger row must
// be the first published change, and the only one of its kind; the result follows all that was deleted.
func (tx *transaction) batch(t testing.TB) map[string]string {
	t.Helper()
	var claim map[string]string
	var result bool
	for i, c := range tx.changes {
		switch {
		case c.table == "lapse.batch":
			if i != 0 || c.kind != "INSERT" {
				t.Errorf("transaction %s: the ledger row is change %d (%s)", tx.xid, i, c.kind)
			}
			claim = c.row
		case c.table == "lapse.batch_result":
			result = true
		case c.kind == "DELETE" && claim != nil && result:
			t.Errorf("transaction %s: a row of %s goes after the result", tx.xid, c.table)
		}
	}
	if claim != nil && !result {
		t.Errorf("transaction %s has a ledger row and no result", tx.xid)
	}
	return claim
}
