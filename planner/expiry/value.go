package expiry

import (
	"context"
	"fmt"
	"strconv"

	"lapse/schemas"
)

// Value is what epoch, iso8601 and instant read: a column, or the value at a path inside a jsonb column.
type Value struct {
	Column string     `json:"column"`
	Number int16      `json:"number"` // in the table
	Type   ColumnType `json:"type"`
	Path   string     `json:"path,omitempty"` // as it was written; "" is the column itself
	// Generated says that the table computes the column from others.
	Generated bool `json:"generated,omitempty"`
}

const jsonType ColumnType = "jsonb"

// valueOf is the value that an entry names.
func valueOf(e Entry) Value { return Value{Column: e["column"], Path: e["path"]} }

// checkValue says what is wrong with an entry's column and path.
func checkValue(e Entry) (problems []Problem) {
	if _, there := e["column"]; !there {
		problems = append(problems, Problem{"", "expire needs column"})
	}
	if path, there := e["path"]; there {
		if _, err := readPath(path); err != nil {
			problems = append(problems, Problem{"path", err.Error()})
		}
	}
	return problems
}

// inJSON reports whether the value is inside a column.
func (v *Value) inJSON() bool { return v.Path != "" }

// raw is the SQL of the column itself; table is "t." or, for an index, "".
func (v *Value) raw(table string) string { return table + schemas.Identifier(v.Column) }

// json is the SQL of the value as jsonb.
func (v *Value) json(table string) string {
	return "(" + v.raw(table) + " #> " + pathSQL(v.Path) + ")"
}

// text is the SQL of a text: the column, or the value inside it.
func (v *Value) text(table string) string {
	if !v.inJSON() {
		return v.raw(table)
	}
	return "(" + v.raw(table) + " #>> " + pathSQL(v.Path) + ")"
}

// onRecord is the column as lapse.policy keeps it.
func (v *Value) onRecord() Column { return Column{Name: v.Column, Number: v.Number, Type: v.Type} }

// recall takes number and type from the record if it is the same value.
func (v *Value) recall(former Value) bool {
	if v.Column != former.Column || v.Path != former.Path {
		return false
	}
	*v = former
	return true
}

// fields are what a person sees of the value, reading being how it is read.
func (v *Value) fields(reading Field, after Interval) []Field {
	return []Field{
		{"expire.column", v.Column},
		{"expire.path", v.Path},
		reading,
		{"expire.after", after.String()},
		{"column type", string(v.Type)},
		{"column number", strconv.Itoa(int(v.Number))},
	}
}

// resolve finds the column. types are those in which the value can be a column of its own, and purpose says so.
func (v *Value) resolve(ctx context.Context, db DB, t Table, purpose string, types ...ColumnType) ([]Problem, error) {
	found, generated, problem, err := findColumn(ctx, db, t, v.Column, purpose, append(types, jsonType, "json")...)
	if err != nil {
		return nil, err
	}
	v.Number, v.Type, v.Generated = found.Number, found.Type, generated
	alter := "alter table " + t.Name + " alter column " + schemas.Identifier(v.Column) + " type jsonb using " + schemas.Identifier(v.Column) + "::jsonb"
	switch {
	case problem != "":
		return []Problem{{"column", problem}}, nil
	case v.Type == "json":
		return []Problem{{"column", fmt.Sprintf("column %s of %s is a json: PostgreSQL parses it again for every look, and fails at some that it has stored, "+
			"which would stop the policy; make it jsonb: %s", v.Column, t.Name, alter)}}, nil
	case v.Type == jsonType && !v.inJSON():
		return []Problem{{"column", fmt.Sprintf("column %s of %s is a jsonb: say with path where in it the value is, for instance path: meta.expires", v.Column, t.Name)}}, nil
	case v.Type != jsonType && v.inJSON():
		return []Problem{{"path", fmt.Sprintf("path leads into a jsonb column, and column %s of %s is of type %s: take path out", v.Column, t.Name, v.Type)}}, nil
	}
	return nil, nil
}

// Joins are none.
func (*Value) Joins() []Join { return nil }

// Scaffold is nothing.
func (*Value) Scaffold(string) string { return "" }
