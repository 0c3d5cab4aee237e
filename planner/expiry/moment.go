package expiry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// ColumnType is a column's type as format_type writes it.
type ColumnType string

// The column types that are read as instants.
const (
	Timestamptz ColumnType = "timestamp with time zone"
	Timestamp   ColumnType = "timestamp without time zone"
	Date        ColumnType = "date"
)

// Moment is a column that is read as an instant.
type Moment struct {
	Column string     `json:"column"`
	Number int16      `json:"number"` // in the table
	Type   ColumnType `json:"type"`
	Zone   string     `json:"zone,omitempty"` // for columns without one; "" is UTC, which nobody has stated
	// Generated says that the table computes the column from others.
	Generated bool `json:"generated,omitempty"`

	alias string // of the relation that has the column, "" for t
}

// momentOf is the moment that an entry names.
func momentOf(e Entry) Moment {
	return Moment{Column: e["column"], Zone: e["zone"]}
}

// inUTC reports whether a local time is read in UTC.
func (m *Moment) inUTC() bool { return m.Zone == "" || m.Zone == "UTC" }

// reading is the moment without what makes no difference to how it is read.
func (m Moment) reading() Moment {
	if m.inUTC() {
		m.Zone = ""
	}
	return m
}

// LocalOf is the column without a zone that a kind reads; nil if it reads none.
func LocalOf(k Kind) *Moment {
	if l, reads := k.(interface{ local() *Moment }); reads {
		return l.local()
	}
	return nil
}

func (m *Moment) local() *Moment {
	if m.Type == Timestamp || m.Type == Date {
		return m
	}
	return nil
}

// checkMoment checks an entry's column and zone.
func checkMoment(e Entry) (problems []Problem) {
	if zone, there := e["zone"]; there {
		if _, err := LoadZone(zone); err != nil {
			problems = append(problems, Problem{"zone", "zone: " + err.Error()})
		}
	}
	if _, there := e["column"]; !there {
		problems = append(problems, Problem{"", "expire needs column"})
	}
	return problems
}

// calendarSlack is more than adding months to the column and taking them from an instant can ever differ by: adding
// stops at a month's last day, so that up to three days more of the column's month are due. It holds only if the days
// and hours are taken off first: they are exact in UTC, and months are not the same before and after them.
// zoneSlack is more than any time zone's offset and its changes.
const (
	calendarSlack = "4 days"
	zoneSlack     = "2 days"
)

// settledSlack is more than all of these together that a bound can have, and as much again for a zone on the other side of UTC.
const settledSlack = "14 days"

// settled is Bound.Settled of an expiry by a column and times that are the same for all rows.
func settled(exact bool) string {
	if exact {
		return "0 days"
	}
	return settledSlack
}

// earliest is a raw lower bound. It keeps -infinity out, and the few hours above PostgreSQL's first instant in which
// time zone arithmetic would raise.
const earliest = "4713-01-01 BC"

// raw is the SQL of the column.
func (m *Moment) raw() string {
	if m.alias != "" {
		return m.alias + "." + schemas.Identifier(m.Column)
	}
	return column(m.Column)
}

// Instant is the SQL of the column as an instant.
func (m *Moment) Instant() string {
	zone := m.Zone
	if zone == "" {
		zone = "UTC"
	}
	switch m.Type {
	case Timestamp:
		return "(" + m.raw() + " at time zone " + schemas.Literal(zone) + ")"
	case Date:
		return "(" + m.raw() + "::timestamp at time zone " + schemas.Literal(zone) + ")"
	default:
		return m.raw()
	}
}

// Order is the raw column.
func (m *Moment) Order() Order { return Order{Column: m.Column, SQL: m.raw(), Cast: string(m.Type)} }

// Joins are none.
func (*Moment) Joins() []Join { return nil }

// Scaffold is nothing.
func (*Moment) Scaffold(string) string { return "" }

// limit is the bound "column <= instant"; instant is SQL. It also excludes -infinity: some drivers write that for a time that is not set, into
// millions of rows that no batch should read.
func (m *Moment) limit(instant string) Bound {
	if !m.inUTC() {
		instant += " + interval " + schemas.Literal(zoneSlack)
	}
	switch m.Type {
	case Timestamp:
		instant = "(" + instant + ") at time zone 'UTC'"
	case Date:
		instant = "((" + instant + ") at time zone 'UTC')::date"
	}
	return Bound{Column: m.raw(), Type: string(m.Type), Value: instant, Floor: m.raw() + " >= " + schemas.Literal(earliest)}
}

// within is the condition under which the column's arithmetic cannot raise, bound being its limit.
func (m *Moment) within(bound string) string {
	return m.raw() + " between " + schemas.Literal(earliest) + " and " + bound
}

// onRecord is the column as lapse.policy keeps it.
func (m *Moment) onRecord() Column { return Column{Name: m.Column, Number: m.Number, Type: m.Type} }

// recall takes number and type from the record if it is the same column, read in the same zone.
func (m *Moment) recall(former Moment) bool {
	stated := m.Zone
	if m.Column != former.Column || m.reading().Zone != former.reading().Zone {
		return false
	}
	*m = former
	m.Zone = stated
	return true
}

// resolve finds the column, and asks the server for the zone.
func (m *Moment) resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	found, generated, problem, err := findColumn(ctx, db, t, m.Column,
		"time is counted from a timestamp or a date; for a Unix time write epoch: s or ms, for dates in a text iso8601: true", Timestamptz, Timestamp, Date)
	if err != nil {
		return nil, err
	}
	m.Number, m.Type, m.Generated = found.Number, found.Type, generated
	if problem != "" {
		return []Problem{{"column", problem}}, nil
	}
	if m.inUTC() {
		return nil, nil
	}
	if m.Type == Timestamptz {
		return []Problem{{"zone", fmt.Sprintf("column %s has a zone of its own: take zone out", m.Column)}}, nil
	}
	err = Attempt(ctx, db, func(tx pgx.Tx) error {
		var at any
		return tx.QueryRow(ctx, `select now() at time zone $1`, m.Zone).Scan(&at)
	})
	if IsDataException(err) {
		return []Problem{{"zone", "the server has no time zone " + yamldoc.Quote(m.Zone)}}, nil
	}
	return nil, err
}

// column is the SQL of a column of the policy's table.
func column(name string) string { return "t." + schemas.Identifier(name) }

// findColumn finds a column of one of these types; purpose ends the text of the problem if it is of another.
func findColumn(ctx context.Context, q Querier, t Table, name, purpose string, types ...ColumnType) (c Column, generated bool, problem string, err error) {
	c.Name = name
	var virtual bool // computed when it is read, so that an error in it would end every batch
	err = q.QueryRow(ctx, `
		select a.attnum, format_type(a.atttypid, null), a.attgenerated = 'v', a.attgenerated <> ''
		  from pg_attribute a
		 where a.attrelid = $1 and a.attname = $2 and a.attnum > 0 and not a.attisdropped`, t.OID, name).Scan(&c.Number, &c.Type, &virtual, &generated)
	if errors.Is(err, pgx.ErrNoRows) {
		return Column{}, false, fmt.Sprintf("%s has no column %s%s", t.Name, yamldoc.Quote(name), suggestColumn(ctx, q, t, name, types)), nil
	}
	if err != nil {
		return Column{}, false, "", fmt.Errorf("find column %s of %s: %w", name, t.Name, err)
	}
	if virtual {
		return Column{}, false, fmt.Sprintf("column %s of %s is a virtual generated column: it is computed when it is read, and an error in it "+
			"would stop the policy; make it stored", name, t.Name), nil
	}
	for _, fit := range types {
		if c.Type == fit {
			return c, generated, "", nil
		}
	}
	return Column{}, false, fmt.Sprintf("column %s of %s is of type %s: %s", name, t.Name, c.Type, purpose), nil
}

// suggestColumn names the nearest column of one of these types, as SQL wants it: "usedAt" needs its quotes.
func suggestColumn(ctx context.Context, q Querier, t Table, name string, types []ColumnType) string {
	rows, err := q.Query(ctx, `
		select quote_ident(a.attname)
		  from pg_attribute a
		 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped and format_type(a.atttypid, null) = any ($2::text[])
		 order by a.attnum`, t.OID, types)
	if err != nil {
		return ""
	}
	valid, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(valid) == 0 {
		return ""
	}
	return yamldoc.Suggestion(name, valid, nil)
}

// list joins types for a person.
func list(types []ColumnType) string {
	texts := make([]string, 0, len(types))
	for _, t := range types {
		texts = append(texts, string(t))
	}
	return strings.Join(texts, ", ")
}
