package evidence

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// CoveredTable is a row of lapse.covered: from its beat on, a table is published, or no longer published.
type CoveredTable struct {
	Number int64 // in the order of the beats
	OID    uint32
	Table  string // as people write it
	Root   string // the table that it is a partition of; empty if it is no partition
	File   uint32 // the number of a partition's file; zero if not known
	Ended  bool
	// MovesBy are the columns that decide a row's partition, if moves are told from deletions.
	MovesBy []string
	// Due says when its rows are due, if users' deletions of them are judged; Where, that rows that are past due may not be: see userdue.go.
	Due   *schemas.Due
	Where bool
}

// NewCoveredTable converts the row's columns; root, movesBy and due are empty, and file is zero, if they are NULL. ok is false if a name cannot
// be read.
func NewCoveredTable(number int64, oid uint32, name, root, movesBy string, file uint32, due string, where, ended bool) (c CoveredTable, ok bool) {
	c = CoveredTable{Number: number, OID: oid, File: file, Due: dueOf(due), Where: where, Ended: ended}
	if c.Table, ok = plainlyQualified(name); ok && root != "" {
		c.Root, ok = plainlyQualified(root)
	}
	if ok && movesBy != "" {
		c.MovesBy, ok = parseIdentifiers(movesBy)
	}
	return c, ok && oid != 0
}

// plainlyQualified converts a name of SQL to how people write it.
func plainlyQualified(text string) (string, bool) {
	schema, name, ok := parseQualified(text)
	return tableName(&replication.Relation{Schema: schema, Name: name}), ok
}

// parseIdentifiers reads names of SQL with commas between them.
func parseIdentifiers(text string) (names []string, ok bool) {
	for rest, more := text, true; more; {
		var name string
		if name, rest, ok = parseIdentifier(rest); !ok {
			return nil, false
		}
		names = append(names, name)
		if rest, more = strings.CutPrefix(rest, ","); !more && rest != "" {
			return nil, false
		}
	}
	return names, true
}

// parseCovered reads a row of lapse.covered.
func parseCovered(change *replication.Change) (c CoveredTable, ok bool) {
	var number int64
	var oid, file uint32
	var name, root, movesBy, due, where, ended string
	found := 0
	for i, column := range change.Relation.Columns {
		text, sent := textOf(change.New, i)
		switch column.Name {
		case "number":
			ok = parseInt64(text, &number)
		case "relation":
			ok = parseUint32(text, &oid)
		case "name":
			name, ok = text, true
		case "ended":
			ended, ok = text, text == "t" || text == "f"
		case "root":
			root = text // or NULL
			continue
		case "moves_by":
			movesBy = text // or NULL
			continue
		case "due":
			due = text // or NULL
			continue
		case "where_is":
			where = text // or NULL
			continue
		case "file":
			if sent && !parseUint32(text, &file) {
				return c, false
			}
			continue
		default:
			continue
		}
		if !sent || !ok {
			return c, false
		}
		found++
	}
	if found != 4 {
		return c, false
	}
	return NewCoveredTable(number, oid, name, root, movesBy, file, due, where == "t", ended == "t")
}

// tables are the published tables, by oid, as of the last beat that was read.
type tables map[uint32]CoveredTable

func newTables(rows []CoveredTable) tables {
	t := tables{}
	for _, row := range rows {
		t.set(row)
	}
	return t
}

func (t tables) set(row CoveredTable) {
	if row.Ended {
		delete(t, row.OID)
	} else {
		t[row.OID] = row
	}
}

// rootOf returns the table that a relation's rows belong to: itself or, if it is a partition, its root. It is empty if no beat has found
// the relation yet.
func (t tables) rootOf(relation *replication.Relation, name string) (root string, partition bool) {
	known, found := t[relation.OID]
	switch {
	case !found:
		return "", false
	case known.Root == "":
		return name, false
	default:
		return known.Root, true
	}
}

// tableLine is the log's line about a table.
type tableLine struct {
	row    CoveredTable
	change string
	former string // its former name, if it was renamed
}

// Changes of a table that a beat finds.
const (
	tableBegins    = "begins"    // it is published
	tableEnds      = "ends"      // it is no longer published, or was not for a while
	tableRenamed   = "renamed"   // it has another name, or is a partition of another table
	tableMoves     = "moves"     // moves between its partitions are told from deletions, or no longer
	tableDue       = "due"       // users' deletions are judged by another rule, or no longer
	tableRewritten = "rewritten" // its file was rewritten, or it was unlogged for a while
	tableRestated  = "restated"  // it is published, as before: the slot was made again
)

// take handles the rows of a beat and returns what each changes.
func (t tables) take(rows []CoveredTable) []tableLine {
	lines := make([]tableLine, 0, len(rows))
	for _, row := range rows {
		line := tableLine{row: row, change: tableBegins}
		former, known := t[row.OID]
		rewritten := known && !row.Ended && former.File != row.File && former.File != 0
		switch {
		case row.Ended:
			line.change = tableEnds
		case known && (former.Table != row.Table || former.Root != row.Root):
			line.change, line.former = tableRenamed, former.Table
		case known && !slices.Equal(former.MovesBy, row.MovesBy):
			line.change = tableMoves
		case known && !former.sameDue(&row):
			line.change = tableDue
		case rewritten:
			line.change = tableRewritten
		case known:
			line.change = tableRestated
		}
		t.set(row)
		lines = append(lines, line)
		if rewritten && line.change != tableRewritten {
			lines = append(lines, tableLine{row: row, change: tableRewritten})
		}
	}
	return lines
}

// tablesContent is a record of coverage that says which tables are covered from its position on, and which no longer are. It comes after
// the record of the heartbeat that found it.
type tablesContent struct {
	At       time.Time // the heartbeat's commit
	Lines    []tableLine
	Until    Reach // up to where tables that are no longer published certainly were
	Ancestry replication.Ancestry
}

// Kind is KindCoverage.
func (*tablesContent) Kind() Kind           { return KindCoverage }
func (c *tablesContent) written() time.Time { return c.At }
func (c *tablesContent) read() (*Heartbeat, replication.Ancestry) {
	return nil, c.Ancestry
}

func (c *tablesContent) append(b []byte, form TextForm) []byte {
	b = append(appendInstant(append(b, `,"at":`...), c.At), `,"tables":[`...)
	for i := range c.Lines {
		line := &c.Lines[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"table":`...), line.row.Table, form)
		b = appendUint(append(b, `,"table_oid":`...), uint64(line.row.OID))
		if line.row.Root != "" {
			b = appendText(append(b, `,"root":`...), line.row.Root, form)
		}
		for k, column := range line.row.MovesBy {
			b = appendText(append(b, [...]string{`,"moves_by":[`, `,`}[min(k, 1)]...), column, form)
		}
		if len(line.row.MovesBy) > 0 {
			b = append(b, ']')
		}
		b = line.row.appendDue(b, form)
		b = append(append(append(b, `,"change":"`...), line.change...), '"')
		if line.former != "" {
			b = appendText(append(b, `,"former":`...), line.former, form)
		}
		if line.change == tableEnds || line.change == tableRewritten {
			b = appendReach(append(b, `,"until":`...), c.Until)
		}
		b = append(b, '}')
	}
	return appendAncestry(append(b, ']'), c.Ancestry)
}

func (c *tablesContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		At     time.Time `json:"at"`
		Tables []struct {
			Table   string          `json:"table"`
			OID     uint32          `json:"table_oid"`
			Root    string          `json:"root"`
			MovesBy []string        `json:"moves_by"`
			Due     json.RawMessage `json:"due"`
			Where   bool            `json:"where"`
			Change  string          `json:"change"`
			Former  string          `json:"former"`
			Until   Reach           `json:"until"`
		} `json:"tables"`
		Ancestry ancestryJSON `json:"ancestry"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.At = j.At
	for _, t := range j.Tables {
		row := CoveredTable{OID: t.OID, Table: form.decode(t.Table), Root: form.decode(t.Root), Ended: t.Change == tableEnds, Due: dueOf(string(t.Due)), Where: t.Where}
		if row.Due != nil {
			row.Due.Column = form.decode(row.Due.Column)
		}
		for _, column := range t.MovesBy {
			row.MovesBy = append(row.MovesBy, form.decode(column))
		}
		c.Lines = append(c.Lines, tableLine{row: row, change: t.Change, former: form.decode(t.Former)})
		if t.Until != (Reach{}) {
			c.Until = t.Until
		}
	}
	c.Ancestry, err = j.Ancestry.ancestry()
	return err
}

func (c *tablesContent) halves() (first, second Content) {
	n := len(c.Lines) / 2
	if n == 0 {
		return nil, nil
	}
	one, other := *c, *c
	one.Lines, other.Lines = c.Lines[:n:n], c.Lines[n:]
	return &one, &other
}

// coverTables makes the records of the tables that changed since the heartbeat before.
func coverTables(lines []tableLine, tx *replication.Tx, until Reach, ancestry replication.Ancestry) (records []Content) {
	for len(lines) > 0 {
		n := min(len(lines), maxLines)
		records = append(records, &tablesContent{At: tx.CommitTime, Lines: lines[:n:n], Until: until, Ancestry: ancestry})
		lines = lines[n:]
	}
	return records
}

// TableChange is the change of a table in a record of coverage.
type TableChange struct {
	OID                         uint32
	Table, Root, Change, Former string
}

// The changes after which the log does not show which rows a table had.
const (
	TableEnds      = tableEnds
	TableRewritten = tableRewritten
)

// Tables returns the changes of tables in a record; nil for most records.
func (r *LogRecord) Tables() []TableChange {
	c, is := r.Content.(*tablesContent)
	if !is {
		return nil
	}
	changes := make([]TableChange, 0, len(c.Lines))
	for i := range c.Lines {
		line := &c.Lines[i]
		changes = append(changes, TableChange{OID: line.row.OID, Table: line.row.Table, Root: line.row.Root, Change: line.change, Former: line.former})
	}
	return changes
}
