package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/planner"
	"lapse/planner/database"
	"lapse/schemas"
)

// Hider hides the due rows of a policy's table, and shows them again: see planner.Hide. It reads no rows.
type Hider struct {
	site.Session
	TableOID uint32
	As       planner.HideAs
	Drop     bool
}

// Hiding is the script that hides a table's rows, for the table as it is.
type Hiding struct {
	*planner.Hide
	SQL      string // one script with its own transaction
	Warnings []string
}

const hideSQL = `
	select n.nspname::text, c.relname::text, pg_get_userbyid(c.relowner)::text, current_setting('server_version_num')::int >= 150000,
	       array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
	       array(select distinct case when x.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end
	               from aclexplode(c.relacl) x where x.privilege_type = 'SELECT' and x.grantee <> c.relowner order by 1),
	       not c.relrowsecurity or exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'lapse_all'),
	       c.relforcerowsecurity,
	       exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'lapse_all')
	         and not exists (select from pg_policy p where p.polrelid = c.oid and p.polname not in ('lapse_all', 'lapse_hide_due')),
	       coalesce((select d.rolname::text from pg_roles d
	                  where d.rolname = $2 || c.relowner and not d.rolbypassrls and not d.rolsuper and not pg_has_role(d.oid, c.relowner, 'usage')), '')
	  from pg_class c
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.oid = $1`

// Preview compares the table with the request, and writes the SQL. h is from planner.HideUnder. It changes nothing.
func (s *Hider) Preview(ctx context.Context, h *planner.Hide) (*Hiding, error) {
	var forced bool
	var blind string // the deleter, if it lacks the rights of the table's owner, because that is a superuser
	w := &Hiding{Hide: h}
	h.As = s.As
	err := s.Conn.QueryRow(ctx, hideSQL, s.TableOID, s.Roles.DeleterPrefix).
		Scan(&h.Schema, &h.Table, &h.Owner, &h.Invoker, &h.Columns, &h.Readers, &h.Open, &forced, &h.Shut, &blind)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &ScaffoldError{"the policy's table is gone"}
	}
	if err != nil {
		return nil, fmt.Errorf("check the policy's table: %w", err)
	}
	if blind != "" && s.As == planner.HidePolicy && !s.Drop {
		table := schemas.Identifier(h.Schema, h.Table)
		return nil, &ScaffoldError{fmt.Sprintf("row security on %s would hide due rows from %s too, and its policy would stop: %s is a superuser, whose rights the deleter has not; "+
			"use --as view, or alter table %s owner to another role, or alter role %s bypassrls", table, blind, h.Owner, table, schemas.Identifier(blind))}
	}
	if forced && s.As == planner.HidePolicy {
		table := schemas.Identifier(h.Schema, h.Table)
		w.Warnings = append(w.Warnings, fmt.Sprintf("%s has FORCE ROW LEVEL SECURITY, under which the policy deletes nothing and stops: alter table %s no force row level security", table, table))
	}
	if h.SetsColumn() && s.As == planner.HidePolicy && !s.Drop {
		w.Warnings = append(w.Warnings, "under row security only the table's owner can set or take back the policy's column: an application that does so itself, and is not the owner, needs --as view")
	}
	if s.Drop {
		w.SQL, err = h.DropSQL()
	} else if err = s.checkView(ctx, h); err == nil {
		w.SQL, err = h.SQL()
	}
	return w, err
}

// checkView refuses to replace a view that hide has not made.
func (s *Hider) checkView(ctx context.Context, h *planner.Hide) error {
	if h.As != planner.HideView {
		return nil
	}
	there, made, err := marked(ctx, s.Conn, h.Schema, h.ViewName(), planner.HideMark)
	switch {
	case err != nil:
		return fmt.Errorf("look for the view: %w", err)
	case !there || made:
		return nil
	}
	return &ScaffoldError{fmt.Sprintf("%s is there already, and hide did not make it: rename it, or use --as policy", schemas.Identifier(h.Schema, h.ViewName()))}
}

// Execute runs the SQL.
//
//	crash in it    nothing of it is left; running it again makes all of it
func (s *Hider) Execute(ctx context.Context, w *Hiding) error {
	return s.RunAsOwner(ctx, "hide what is due", w.SQL, w.Schema, w.Owner)
}

// marked reports whether a relation exists, and whether its comment is the mark of what made it.
func marked(ctx context.Context, q database.Querier, schema, name, mark string) (there, made bool, err error) {
	err = q.QueryRow(ctx, `
		select coalesce(obj_description(c.oid, 'pg_class') = $3, false)
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace
		 where n.nspname = $1 and c.relname = $2`, schema, name, mark).Scan(&made)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, nil
	}
	return err == nil, made, err
}
