package planner

import (
	"context"
	"fmt"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/expression"
)

// where lets PostgreSQL read the policy's where.
func (s *resolution) where(ctx context.Context, t *table) error {
	if s.p.Where == "" {
		return nil
	}
	read, problem, err := expression.Read(ctx, s.tx, t.OID, s.p.Where, expression.Boolean)
	if err != nil {
		return err
	}
	if problem != "" {
		s.complain("where", "where: "+problem)
		return nil
	}
	w := &Where{SQL: read.SQL, Bare: read.Bare}
	for _, c := range read.Columns {
		w.Columns = append(w.Columns, expiry.Column{Name: c.Name, Number: c.Number, Type: expiry.ColumnType(c.Type)})
	}
	for _, warning := range read.Warnings {
		s.warnings = append(s.warnings, "where: "+warning)
	}
	s.r.Definition.Where = w
	return nil
}

// text is what a person sees of a where, "" for none.
func (w *Where) text() string {
	if w == nil {
		return ""
	}
	return w.SQL
}

// columns are those of a where, with numbers and types, for a person.
func (w *Where) columns() string {
	if w == nil {
		return ""
	}
	all := make([]string, 0, len(w.Columns))
	for _, c := range w.Columns {
		all = append(all, fmt.Sprintf("%s %s (%d)", c.Name, c.Type, c.Number))
	}
	return strings.Join(all, ", ")
}
