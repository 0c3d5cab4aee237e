package resolve

import (
	"context"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/expression"
	"lapse/planner/functions"
)

// where lets PostgreSQL read the policy's where, extended by the condition that a soft action has not set its column. So plans, looks, batches and
// their index only concern rows that are not set.
func (s *resolution) where(ctx context.Context, t *database.Table) error {
	if s.p.Where != "" {
		if read, err := s.readWhere(ctx, t, s.p.Where); read == nil || err != nil {
			return err
		}
		if expression.MayNamePeople(s.p.Where) {
			s.warnings = append(s.warnings, "where: it has values that may stand for a person: the catalog and the write-ahead log keep its text, and the audit's log a keyed hash of it, for ever: "+
				"compare with a column of the row in place of the value")
		}
	}
	if text := s.r.Definition.UnsetAnd(s.p.Where); text != s.p.Where {
		if read, err := s.readWhere(ctx, t, text); read == nil || err != nil {
			return err
		}
	}
	return nil
}

// readWhere lets PostgreSQL read a condition and makes it the policy's. It returns nil after a complaint.
func (s *resolution) readWhere(ctx context.Context, t *database.Table, text string) (*functions.Where, error) {
	read, problem, err := expression.Read(ctx, s.tx, t.OID, text, expression.Boolean)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		s.complain("where", "where: "+problem)
		return nil, nil
	}
	w := &functions.Where{SQL: read.SQL, Bare: read.Bare}
	for _, c := range read.Columns {
		w.Columns = append(w.Columns, expiry.Column{Name: c.Name, Number: c.Number, Type: expiry.ColumnType(c.Type)})
	}
	if s.r.Definition.Where == nil {
		for _, warning := range read.Warnings {
			s.warnings = append(s.warnings, "where: "+warning)
		}
	}
	s.r.Definition.Where = w
	return w, nil
}
