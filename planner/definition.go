package planner

import "lapse/schemas"

// ColumnType is the type of the column a policy counts from.
type ColumnType string

// The column types that a policy may count from.
const (
	Timestamptz ColumnType = "timestamp with time zone"
	Timestamp   ColumnType = "timestamp without time zone"
	Date        ColumnType = "date"
)

// KeyColumn is one column of the table's replica identity: what names a row, and what orders rows that are due at the
// same instant.
type KeyColumn struct {
	Name   string `json:"name"`
	Number int16  `json:"number"` // in the table: another column of that name is another column
	Type   string `json:"type"`   // as format_type writes it, schema-qualified where needed
	// Plain says that the type's own ordering can be written without its schema's operators, and that a value of it
	// survives being written as text and read back. Others are ordered by their text form, which is a total order too,
	// only not the index's.
	Plain bool `json:"plain"`
}

// Definition is all that the text of a policy version's functions depends on. Two equal definitions give the same text,
// byte for byte.
type Definition struct {
	ID         schemas.PolicyID
	Version    schemas.PolicyVersion
	Name       schemas.PolicyName
	Table      string // schema.table, quoted where SQL wants it
	Column     string
	Number     int16 // the column's, in the table
	ColumnType ColumnType
	Zone       string // for columns without one; "" is UTC
	After      Interval
	Key        []KeyColumn
	Batch      int    // the largest batch
	TableOwner uint32 // the role whose deleter owns the functions
}

// column as lapse.policy keeps it.
type columnOnRecord struct {
	Name   string     `json:"name"`
	Number int16      `json:"number"`
	Type   ColumnType `json:"type,omitempty"`
}

// columns are what the functions were made for: name, number and type of the policy's column, and name and number of the
// key's. lapse.same_table compares the table with them.
func (d *Definition) columns() []columnOnRecord {
	all := []columnOnRecord{{d.Column, d.Number, d.ColumnType}}
	for _, k := range d.Key {
		all = append(all, columnOnRecord{Name: k.Name, Number: k.Number})
	}
	return all
}

// calendarSlack is more than adding months to the column and taking them from an instant can ever differ by: adding
// stops at a month's last day, so that up to three days more of the column's month are due. It holds only if the days
// and hours are taken off first: they are exact in UTC, and months are not the same before and after them.
// zoneSlack is more than any time zone's offset and its changes.
const (
	calendarSlack = "4 days"
	zoneSlack     = "2 days"
)

func (d *Definition) column() string { return "t." + schemas.Identifier(d.Column) }

// instant is the SQL of the column as an instant.
func (d *Definition) instant() string {
	zone := d.Zone
	if zone == "" {
		zone = "UTC"
	}
	switch d.ColumnType {
	case Timestamp:
		return "(" + d.column() + " at time zone " + schemas.Literal(zone) + ")"
	case Date:
		return "(" + d.column() + "::timestamp at time zone " + schemas.Literal(zone) + ")"
	default:
		return d.column()
	}
}

// bound is the SQL of the raw column's upper bound: a superset of what is due, so that an index on the column serves.
// It is computed once per call, from cutoff.
func (d *Definition) bound(cutoff string) string {
	sql := cutoff
	if exact := (Interval{Days: d.After.Days, Microseconds: d.After.Microseconds}); !exact.IsZero() || d.After.Months == 0 {
		sql += " - interval " + schemas.Literal(exact.String())
	}
	if months := (Interval{Months: d.After.Months}); !months.IsZero() {
		sql += " - interval " + schemas.Literal(months.String()) + " + interval " + schemas.Literal(calendarSlack)
	}
	if d.Zone != "" && d.Zone != "UTC" {
		sql += " + interval " + schemas.Literal(zoneSlack)
	}
	switch d.ColumnType {
	case Timestamp:
		return "(" + sql + ") at time zone 'UTC'"
	case Date:
		return "((" + sql + ") at time zone 'UTC')::date"
	default:
		return sql
	}
}

// earliest is a raw lower bound. It keeps -infinity out, and the few hours above PostgreSQL's first instant in which
// time zone arithmetic would raise.
const earliest = "4713-01-01 BC"

// due is the SQL of the exact condition, guarded so that no value can raise: PostgreSQL evaluates a case in order, but
// the parts of an AND in any order it likes.
func (d *Definition) due(cutoff, bound string) string {
	return "case when " + d.column() + " between " + schemas.Literal(earliest) + " and " + bound +
		" then " + d.instant() + " + interval " + schemas.Literal(d.After.String()) + " <= " + cutoff + " else false end"
}

// orderColumns are the SQL expressions that the pick is ordered by, and the casts that read a cursor back.
func (d *Definition) orderColumns() (expressions, casts []string) {
	expressions, casts = []string{d.column()}, []string{string(d.ColumnType)}
	for _, k := range d.Key {
		if k.Name == d.Column {
			continue
		}
		if k.Plain {
			expressions, casts = append(expressions, "t."+schemas.Identifier(k.Name)), append(casts, k.Type)
		} else {
			expressions, casts = append(expressions, "(t."+schemas.Identifier(k.Name)+`)::text collate "C"`), append(casts, `text collate "C"`)
		}
	}
	return expressions, casts
}
