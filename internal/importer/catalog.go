package importer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// rowsOf returns the rows of each table or view with this name as documents, because the columns differ between versions.
func (s *Server) rowsOf(ctx context.Context, name, sql string) (all []map[string]any, err error) {
	homes, err := collect[struct{ Schema string }](ctx, s.conn, `
		select n.nspname::text
		  from pg_class c
		  join pg_namespace n on n.oid = c.relnamespace
		 where c.relname = $1 and c.relkind in ('r', 'v')
		 order by 1`, name)
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", name, err)
	}
	if len(homes) == 0 {
		return nil, fmt.Errorf("database %s has no %s: name the database that the extension is installed in, or give its rows as JSON", s.Database, name)
	}
	for _, home := range homes {
		rows, err := collect[struct{ Row string }](ctx, s.conn, fmt.Sprintf(sql, schemas.Identifier(home.Schema)))
		if err != nil {
			return nil, fmt.Errorf("read %s.%s: %w", home.Schema, name, err)
		}
		for _, r := range rows {
			some, err := documents(r.Row)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// column is a column of a table that can have a policy.
type column struct {
	table database.Table
	name  string
	s     *surroundings
	of    moment
}

// column finds a table and its time column, and reports what is wrong with them.
func (s *Server) column(ctx context.Context, i *Item, table, name string) (c *column, err error) {
	c = &column{name: name}
	problem := ""
	err = s.undone(ctx, func(tx pgx.Tx) error {
		c.table, problem, err = database.FindTable(ctx, tx, table)
		return err
	})
	if err != nil || problem != "" {
		i.lose("%s", problem)
		return nil, err
	}
	set, err := s.settingsOf(ctx, s.Login)
	if err != nil {
		return nil, err
	}
	c.s = &surroundings{zone: set.Zone}
	if c.s.columns, err = s.columns(ctx, c.table.OID); err != nil {
		return nil, err
	}
	v, ok := c.s.column(name)
	switch {
	case !ok:
		i.lose("column %s of %s is of a type that says no time: %q", name, c.table.Name, c.s.columns[name])
		return nil, nil
	case v.amount != nil:
		c.of = *v.amount.of
	case v.moment != nil:
		c.of = *v.moment
	default:
		i.lose("column %s of %s is an interval", name, c.table.Name)
		return nil, nil
	}
	return c, nil
}

// before makes the policy for a job that deletes a row when its column is that long before now.
func (i *Item) before(c *column, wait period, name schemas.PolicyName) bool {
	now := moment{}
	v, ok := now.shifted(wait, true)
	var d *due
	if ok {
		d, ok = c.s.before(c.of, "<", *v.moment)
	}
	if !ok {
		i.lose("so long cannot be counted: column %s, %s", c.name, wait.interval())
		return false
	}
	i.Policy = &policyfile.Policy{Name: name, Table: c.table.Name, Expire: d.entry(), Every: policyfile.DefaultEvery}
	i.Notes, i.Lost = append(i.Notes, d.notes...), append(i.Lost, d.lost...)
	return true
}

// readInterval has PostgreSQL read an interval that a user wrote.
func (s *Server) readInterval(ctx context.Context, text string) (p period, ok bool, err error) {
	var written *string
	err = s.undone(ctx, func(tx pgx.Tx) error {
		return s.row(ctx, tx, `select case when pg_input_is_valid($1, 'interval') then $1::text::interval::text end`, text).Scan(&written)
	})
	if schemas.StateOf(err) == schemas.SQLStateUndefinedFunction { // before PostgreSQL 16
		err = s.undone(ctx, func(tx pgx.Tx) error { return s.row(ctx, tx, `select $1::text::interval::text`, text).Scan(&written) })
		if state := schemas.StateOf(err); len(state) == 5 && state[:2] == "22" {
			return p, false, nil
		}
	}
	if err != nil || written == nil {
		return p, false, err
	}
	p, ok = readPeriod(*written)
	return p, ok && p.sensible(), nil
}
