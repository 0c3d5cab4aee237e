package evidence

import (
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// Rows of the catalog say what is in force in a database: policies, their states, holds. All changes of those rows are published in full,
// so that the log has what PostgreSQL did to them, for any reason.

// maxCatalogRows bounds how many rows of the catalog one transaction has records for.
const maxCatalogRows = 10_000

// The names of changes to a row, for records.
const (
	rowInserted  = "insert"
	rowUpdated   = "update"
	rowDeleted   = "delete"
	rowTruncated = "truncate" // every row of the table
	rowRestated  = "restated" // repeated, because the log may have missed it
)

// columns are the values of a row by column name. A value that is NULL or was not sent is "".
type columns func(name string) string

// columnsOf returns the columns of a row. Large values that an update did not change come from its former row.
func columnsOf(relation *replication.Relation, row, former []replication.Value) columns {
	return func(name string) string {
		for i := range relation.Columns {
			if relation.Columns[i].Name != name {
				continue
			}
			from := row
			if i < len(row) && row[i].Kind == replication.Unchanged {
				from = former
			}
			text, _ := textOf(from, i)
			return text
		}
		return ""
	}
}

// catalogChange is one row of the catalog that a transaction wrote, changed or deleted.
type catalogChange[R any] struct {
	Row string // the table
	Op  string
	Is  *R // the new row; nil if it was deleted
	Was *R // the former row; nil if there was none
}

// readCatalogChange reads a change of a table whose rows records call row.
func readCatalogChange[R any](change *replication.Change, row string, read func(row string, c columns) *R) catalogChange[R] {
	c := catalogChange[R]{Row: row}
	is := func() *R { return read(row, columnsOf(change.Relation, change.New, change.Old)) }
	was := func() *R { return read(row, columnsOf(change.Relation, change.Old, nil)) }
	switch change.Op {
	case replication.OpInsert:
		c.Op, c.Is = rowInserted, is()
	case replication.OpUpdate:
		c.Op, c.Is, c.Was = rowUpdated, is(), was()
	case replication.OpDelete:
		c.Op, c.Was = rowDeleted, was()
	case replication.OpTruncate:
		c.Op = rowTruncated
	}
	return c
}

// catalogRows are a transaction's changes of rows of the catalog.
type catalogRows struct {
	policies   []catalogChange[PolicyRow]
	holds      []catalogChange[HoldRow]
	quarantine []QuarantineContent
	snapshots  []*SnapshotContent
	others     uint64 // the number of rows that there is no room for
}

func (r *catalogRows) rows() int {
	return len(r.policies) + len(r.holds) + len(r.quarantine) + len(r.snapshots)
}

func (r *catalogRows) any() bool { return r.rows() > 0 || r.others > 0 }

// take reads a change, and reports whether it is of a table of the catalog.
func (r *catalogRows) take(change *replication.Change) bool {
	table := change.Relation.Name
	policy, hold := policyRows[table], holdRows[table]
	switch {
	case policy == "" && hold == "":
		return false
	case r.full():
	case policy != "":
		if c := readCatalogChange(change, policy, readPolicyRow); c.Row != policyGate || !sameGate(c.Is, c.Was) {
			r.policies = append(r.policies, c)
		}
	default:
		r.holds = append(r.holds, readCatalogChange(change, hold, readHoldRow))
	}
	return true
}

// full counts a row if there is no room for it.
func (r *catalogRows) full() bool {
	if r.rows() < maxCatalogRows {
		return false
	}
	r.others++
	return true
}

// restate takes a row of lapse.restated.
func (r *catalogRows) restate(change *replication.Change) {
	var texts map[string]string
	row := columnsOf(change.Relation, change.New, nil)
	if r.full() || json.Unmarshal([]byte(row("columns")), &texts) != nil {
		return
	}
	c := columns(func(name string) string { return texts[name] })
	switch row("what") {
	case "policy":
		r.policies = append(r.policies, catalogChange[PolicyRow]{Row: policyVersion, Op: rowRestated, Is: readPolicyRow(policyVersion, c)})
	case policyHalt:
		r.policies = append(r.policies, catalogChange[PolicyRow]{Row: policyHalt, Op: rowRestated, Is: readPolicyRow(policyHalt, c)})
	case holdPlaced:
		r.holds = append(r.holds, catalogChange[HoldRow]{Row: holdPlaced, Op: rowRestated, Is: readHoldRow(holdPlaced, c)})
	case "quarantine":
		r.quarantine = append(r.quarantine, readQuarantine(rowRestated, c))
	}
}

// quarantined takes a row of lapse.quarantine_change.
func (r *catalogRows) quarantined(change *replication.Change) {
	if !r.full() {
		r.quarantine = append(r.quarantine, readQuarantine(rowInserted, columnsOf(change.Relation, change.New, nil)))
	}
}

// snapshot takes a row of lapse.snapshot.
func (r *catalogRows) snapshot(change *replication.Change) {
	if !r.full() {
		r.snapshots = append(r.snapshots, readSnapshot(change))
	}
}

// contents returns their records: policies first, in the order of the changes.
func (r *catalogRows) contents(tx *replication.Tx) (records []Content) {
	for _, c := range r.tellGates() {
		records = append(records, &PolicyContent{Committed: committed(tx), catalogChange: c.catalogChange, ByHand: c.byHand})
	}
	for _, c := range r.holds {
		records = append(records, &HoldContent{Committed: committed(tx), catalogChange: c})
	}
	for i := range r.quarantine {
		r.quarantine[i].Committed = committed(tx)
		records = append(records, &r.quarantine[i])
	}
	for _, s := range r.snapshots {
		s.Committed = committed(tx)
		records = append(records, s)
	}
	if r.others > 0 {
		others := catalogChange[PolicyRow]{Row: policyOthers, Op: rowUpdated}
		records = append(records, &PolicyContent{Committed: committed(tx), catalogChange: others, Others: r.others})
	}
	return records
}

// policyRows and holdRows are the tables of the catalog, and what records call their rows.
var (
	policyRows = map[string]string{
		schemas.PolicyTable: policyVersion, schemas.PolicyStateTable: policyState, schemas.GateTable: policyGate, schemas.HaltTable: policyHalt,
	}
	holdRows = map[string]string{schemas.HoldTable: holdPlaced, schemas.HoldStateTable: holdState, schemas.HoldTreeTable: holdRelation}
)

// appendChange writes what happened to a row, and the row.
func appendChange[R any](b []byte, c *catalogChange[R], form TextForm, write func(r *R, o *object)) []byte {
	b = append(append(append(b, `,"row":"`...), c.Row...), '"')
	b = append(append(append(b, `,"op":"`...), c.Op...), '"')
	for _, side := range []struct {
		name string
		row  *R
	}{{"is", c.Is}, {"was", c.Was}} {
		if side.row == nil {
			continue
		}
		o := object{append(append(append(b, `,"`...), side.name...), `":{`...), form}
		write(side.row, &o)
		b = append(o.b, '}')
	}
	return b
}

// object writes the members of a JSON object that are not empty.
type object struct {
	b    []byte
	form TextForm
}

func (o *object) name(name string) {
	if last := o.b[len(o.b)-1]; last != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), `":`...)
}

func (o *object) text(name, value string) {
	if value != "" {
		o.name(name)
		o.b = appendText(o.b, value, o.form)
	}
}

func (o *object) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		o.b = appendInt(o.b, value)
	}
}

func (o *object) flag(name string, value bool) {
	if value {
		o.name(name)
		o.b = appendBool(o.b, value)
	}
}

func (o *object) instant(name string, value time.Time) {
	if !value.IsZero() {
		o.name(name)
		o.b = appendInstant(o.b, value)
	}
}

// maxCatalogText is how many characters of a text a record has. Reasons and matters are not longer when they are entered.
const maxCatalogText = 200

// cut shortens a text that is too long for a record.
func cut(text string) string {
	n := 0
	for i := range text {
		if n == maxCatalogText {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// timeOf returns the time in a column, zero if it has none.
func timeOf(text string) (t time.Time) {
	parseInstant(text, &t)
	return t
}

// numberOf returns the number in a column, zero if it has none.
func numberOf(text string) (n int64) {
	parseInt64(text, &n)
	return n
}

// tableOf returns a table's name as people write it, or as in the row if it is no name of SQL.
func tableOf(text string) string {
	if name, ok := plainlyQualified(text); ok {
		return name
	}
	return cut(text)
}
