package expiry

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"lapse/schemas"
)

// TTL is the kind {column, ttl_column, ttl_default}: a row is due when Column + its own ttl <= cutoff. The ttl is a number
// of seconds or an interval; a row without one has the default, or never expires.
//
// A row with a negative ttl, an interval with a negative part, or a ttl of more than six thousand years is never due: such a ttl is a mistake,
// or means "never" (many programs write -1), and a wrong deletion cannot be undone. With a ttl of 0 a row is due at its column. So no row is
// due before its column, which gives the bound.
type TTL struct {
	Kind string `json:"kind"`
	Moment
	TTLColumn string     `json:"ttl_column"`
	TTLNumber int16      `json:"ttl_number"`
	TTLType   ColumnType `json:"ttl_type"`
	Default   *Interval  `json:"ttl_default,omitempty"`
	// Sparse: the index in use has only the rows with a ttl, since the others never expire. So a search for rows must ask for a ttl.
	Sparse bool `json:"sparse,omitempty"`
}

const ttlKind = "ttl"

const intervalType ColumnType = "interval"

// ttlTypes are what a ttl can be kept in.
func ttlTypes() []ColumnType { return []ColumnType{"smallint", "integer", "bigint", intervalType} }

// The longest valid ttl, in two forms that PostgreSQL compares as equal, because it counts a month as 30 days then. Added to an instant of these
// centuries it stays inside the calendar.
const (
	longestTTL        = "6000 years"
	longestTTLSeconds = "186624000000"
)

func ttlFamily() family {
	return family{
		name:  ttlKind,
		keys:  []string{"column", "ttl_column", "ttl_default", "zone"},
		marks: []string{"ttl_column", "ttl_default"},
		check: func(e Entry) []Problem {
			problems := checkMoment(e)
			switch name, there := e["ttl_column"]; {
			case !there:
				problems = append(problems, Problem{"ttl_default", "ttl_default needs ttl_column: for one time for all rows write after"})
			case name == e["column"]:
				problems = append(problems, Problem{"ttl_column", "ttl_column and column are the same column"})
			}
			return problems
		},
		read: readTTL,
		load: func(text []byte) (Kind, error) { return load(text, &TTL{}) },
	}
}

func readTTL(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
	l := &TTL{Kind: ttlKind, Moment: momentOf(e), TTLColumn: e["ttl_column"]}
	text, there := e["ttl_default"]
	if !there {
		return l, nil, nil
	}
	i, problem, err := readPeriod(ctx, db, text)
	if err != nil {
		return nil, nil, err
	}
	l.Default = &i
	if problem == "" {
		var tooLong bool
		if err := db.QueryRow(ctx, `select $1::text::interval > $2::text::interval`, i.String(), longestTTL).Scan(&tooLong); err != nil {
			return nil, nil, fmt.Errorf("compare a duration: %w", err)
		}
		if tooLong {
			problem = fmt.Sprintf("ttl_default is more than %s: leave it out, and rows without a ttl never expire", longestTTL)
		}
	}
	if problem != "" {
		return l, []Problem{{"ttl_default", problem}}, nil
	}
	return l, nil, nil
}

// Resolve finds both columns.
func (l *TTL) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	problems, err := l.resolve(ctx, db, t)
	if err != nil {
		return nil, err
	}
	found, _, problem, err := findColumn(ctx, db, t, l.TTLColumn, "a ttl is a number of seconds ("+list(ttlTypes()[:3])+") or an interval", ttlTypes()...)
	if problem != "" {
		problems = append(problems, Problem{"ttl_column", problem})
	}
	l.TTLNumber, l.TTLType = found.Number, found.Type
	return problems, err
}

// Columns are the column and the ttl.
func (l *TTL) Columns() []Column {
	return []Column{l.onRecord(), {Name: l.TTLColumn, Number: l.TTLNumber, Type: l.TTLType}}
}

// Recall takes both columns from the record.
func (l *TTL) Recall(former Kind) Kind {
	was, same := former.(*TTL)
	next := *l
	if !same || next.TTLColumn != was.TTLColumn || !next.recall(was.Moment) {
		return nil
	}
	next.TTLNumber, next.TTLType, next.Sparse = was.TTLNumber, was.TTLType, was.Sparse && next.Default == nil
	return &next
}

// MoreThan is false for the same columns, read in the same zone, and no default or one that is certainly no shorter.
func (l *TTL) MoreThan(former Kind) bool {
	was, same := former.(*TTL)
	if !same || !slices.Equal(l.Columns(), was.Columns()) || l.reading().Zone != was.reading().Zone {
		return true
	}
	return l.Default != nil && (was.Default == nil || l.Default.MayBeShorter(*was.Default))
}

// Fields are the entry's keys, and what the columns are.
func (l *TTL) Fields() []Field {
	ifNone := ""
	if l.Default != nil {
		ifNone = l.Default.String()
	}
	indexed := ""
	if l.Sparse {
		indexed = "only rows with a ttl"
	}
	return []Field{
		{"index has", indexed},
		{"expire.column", l.Column},
		{"expire.ttl_column", l.TTLColumn},
		{"expire.ttl_default", ifNone},
		{"expire.zone", l.Zone},
		{"column type", string(l.Type)},
		{"column number", strconv.Itoa(int(l.Number))},
		{"ttl column type", string(l.TTLType)},
		{"ttl column number", strconv.Itoa(int(l.TTLNumber))},
	}
}

// Bound is the cutoff: no ttl is negative.
func (l *TTL) Bound(cutoff string) Bound {
	b := l.limit(cutoff)
	if l.Sparse {
		b.Also = column(l.TTLColumn) + " is not null"
	}
	return b
}

// Due is guarded as Age's is. An interval's parts are checked in its binary form, microseconds, days and months: to take
// it apart by extract raises for some values on PostgreSQL 14.
func (l *TTL) Due(cutoff, bound string) string {
	ttl := column(l.TTLColumn)
	readable, amount := ttl+" between 0 and "+longestTTLSeconds, ttl+" * interval '1 second'"
	if l.TTLType == intervalType {
		readable, amount = ttl+" <= interval "+schemas.Literal(longestTTL), ttl
		for _, sign := range []string{"0", "8", "12"} {
			readable += " and get_byte(interval_send(" + ttl + "), " + sign + ") < 128"
		}
	}
	sum := func(amount string) string { return l.Instant() + " + " + amount + " <= " + cutoff }
	if l.Default == nil {
		return "case when " + l.within(bound) + " and " + readable + " then " + sum(amount) + " else false end"
	}
	return "case when " + l.within(bound) + " then case when " + ttl + " is null then " + sum("interval "+schemas.Literal(l.Default.String())) +
		" when " + readable + " then " + sum(amount) + " else false end else false end"
}

// Index is one that begins with the column: it gives the order, and leaves out what lies ahead of the cutoff.
func (l *TTL) Index() Index {
	sparse := ""
	if l.Default == nil {
		sparse = schemas.Identifier(l.TTLColumn) + " is not null"
	}
	return Index{
		Column: l.Column, Sparse: sparse,
		Warning: fmt.Sprintf("no index leads to the due rows, since each has a ttl of its own: every run reads all rows whose %s is past; "+
			"where few of them are due, keep the due time in a column of its own, and use {column: that, after: 0 days}", l.Column),
	}
}
