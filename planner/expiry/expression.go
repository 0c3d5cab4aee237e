package expiry

import (
	"context"
	"slices"
	"strings"

	"lapse/planner/expression"
	"lapse/schemas"
)

// Expression is the kind {expression}: an instant is computed from the row's own columns, and the row is due from that instant on. A row with
// NULL, ±infinity or an instant before 4713 BC is never due. An error that the expression raises for a row (a division by zero, a text that
// is no date) ends the batch: only its author can prevent that, by case.
type Expression struct {
	Kind      string   `json:"kind"`
	Text      string   `json:"expression"` // as it was written
	SQL       string   `json:"sql"`        // over t
	Bare      string   `json:"bare"`       // as PostgreSQL writes it in an index
	Reads     []Column `json:"reads"`
	Immutable bool     `json:"immutable"` // an index can hold it
	MayRaise  bool     `json:"may_raise"`

	warnings []string // for who applies it
}

const expressionKind = "expression"

func expressionFamily() family {
	return family{
		name: expressionKind, keys: []string{"expression"}, marks: []string{"expression"},
		check: func(Entry) []Problem { return nil },
		read: func(_ context.Context, _ DB, e Entry) (Kind, []Problem, error) {
			return &Expression{Kind: expressionKind, Text: e["expression"]}, nil, nil
		},
		load: func(text []byte) (Kind, error) { return load(text, &Expression{}) },
	}
}

// Resolve lets PostgreSQL read the expression. See package expression.
func (x *Expression) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	read, problem, err := expression.Read(ctx, db, t.OID, x.Text, expression.Instant)
	if err != nil {
		return nil, err
	}
	if problem == "" && len(read.Columns) == 0 {
		problem = "it reads no column, so that all rows would be due at once, or none"
	}
	if problem != "" {
		return []Problem{{"expression", "expression: " + problem}}, nil
	}
	x.SQL, x.Bare, x.Immutable, x.MayRaise, x.warnings = read.SQL, read.Bare, read.Immutable, read.MayRaise, read.Warnings
	x.Reads = nil
	for _, c := range read.Columns {
		x.Reads = append(x.Reads, Column{Name: c.Name, Number: c.Number, Type: ColumnType(c.Type)})
	}
	return nil, nil
}

// Columns are the columns that the expression reads.
func (x *Expression) Columns() []Column { return slices.Clone(x.Reads) }

// Recall takes what was read from the record.
func (x *Expression) Recall(former Kind) Kind {
	was, same := former.(*Expression)
	if !same || x.Text != was.Text {
		return nil
	}
	next := *was
	return &next
}

// MoreThan is false for the same expression over the same columns.
func (x *Expression) MoreThan(former Kind) bool {
	was, same := former.(*Expression)
	return !same || x.SQL != was.SQL || !slices.EqualFunc(x.Reads, was.Reads, Column.same)
}

// Fields are the expression, what PostgreSQL understood, and what the columns are.
func (x *Expression) Fields() []Field {
	return []Field{
		{"expire.expression", strings.Join(strings.Fields(x.Text), " ")},
		{"expression means", x.SQL},
		{"expression's columns", Texts(x.Reads)},
	}
}

// Bound is the cutoff, if an index can hold the expression: every row within it is due, except those that never are.
func (x *Expression) Bound(cutoff string) Bound {
	if !x.Immutable {
		return Bound{}
	}
	instant := "(" + x.SQL + ")"
	return Bound{Column: instant, Type: string(Timestamptz), Value: cutoff, Floor: instant + " >= " + schemas.Literal(earliest), Exact: true}
}

// Due computes the instant. The comparison itself never raises an error.
func (x *Expression) Due(cutoff, _ string) string {
	return "case when (" + x.SQL + ") between " + schemas.Literal(earliest) + " and " + cutoff + " then true else false end"
}

// Instant is the expression.
func (x *Expression) Instant() string { return "(" + x.SQL + ")" }

// Order is the expression where an index can hold it, and otherwise the key's.
func (x *Expression) Order() Order {
	if !x.Immutable {
		return Order{}
	}
	return Order{SQL: "(" + x.SQL + ")", Cast: string(Timestamptz)}
}

// Joins are none.
func (*Expression) Joins() []Join { return nil }

// Index is one on the expression, if PostgreSQL lets an index hold it.
func (x *Expression) Index() Index {
	warnings := x.warnings
	switch {
	case !x.Immutable:
		warnings = append(slices.Clone(warnings), "no index can hold the expression, since it depends on the session's time zone or the like, so that every look "+
			"reads the whole table: compute in a timestamp without zone, as in (column at time zone 'UTC' + interval '30 days') at time zone 'UTC', "+
			"or keep the due time in a column of its own")
	case x.MayRaise:
		warnings = append(slices.Clone(warnings), "an index on the expression keeps the application from writing rows for which the expression raises, "+
			"such as a time beyond PostgreSQL's calendar: guard it by case, or keep the due time in a column of its own")
	}
	i := Index{Warning: strings.Join(warnings, "; ")}
	if x.Immutable {
		i.Expression = x.Bare
	}
	return i
}

// Scaffold is nothing.
func (*Expression) Scaffold(string) string { return "" }
