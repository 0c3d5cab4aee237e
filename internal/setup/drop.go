package setup

import (
	"context"
	"fmt"
	"slices"

	"lapse/internal/catalog"
	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

// leavers finds the tables of dropped policies that no other policy needs in a publication. There they would do harm: a
// published table that loses its primary key refuses its own deletes.
func (a *Applier) leavers(ctx context.Context, members []replication.Member, changes Changes) error {
	if !slices.ContainsFunc(changes, func(c Change) bool { return c.Kind == planner.Removed }) {
		return nil
	}
	inForce, err := planner.LoadInForce(ctx, a.Conn)
	if err != nil {
		return err
	}
	dropped, needed := map[schemas.PolicyName]*Change{}, map[uint32]bool{}
	for i := range changes {
		c := &changes[i]
		for _, oid := range c.tables {
			needed[oid] = true
		}
		if c.Kind == planner.Removed {
			dropped[c.Policy] = c
		}
	}
	touched := map[schemas.PolicyName][]uint32{}
	for i := range inForce {
		p := &inForce[i]
		tables, err := reached(ctx, a.Conn, p.TableOID)
		if err != nil {
			return err
		}
		touched[p.Name] = tables
		for _, oid := range tables {
			needed[oid] = needed[oid] || dropped[p.Name] == nil
		}
	}
	for name, c := range dropped {
		for _, m := range members {
			if m.Publication != replication.Ledger && slices.Contains(touched[name], m.OID) && !needed[m.OID] {
				c.Leave = append(c.Leave, schemas.Identifier(m.Schema, m.Name))
				c.leaving = append(c.leaving, m)
			}
		}
	}
	return nil
}

// leave takes the tables of a dropped policy out of their publications, as far as nobody has to wait for it. What stays is a
// warning.
func (a *Applier) leave(ctx context.Context, c *Change) {
	for _, m := range c.leaving {
		table := schemas.Identifier(m.Schema, m.Name)
		err := a.unpublish(ctx, m.OID)
		if err == nil {
			continue
		}
		c.Left = append(c.Left, fmt.Sprintf("%s is still published, although no policy needs it there (%v): alter publication %s drop table %s",
			table, err, m.Publication, table))
	}
	c.Warnings = append(c.Warnings, c.Left...)
}

// dropDeleters removes the roles that delete for nobody any more. It takes back what was granted on a superuser's tables,
// for which PostgreSQL locks them: nobody is waited for.
func (a *Applier) dropDeleters(ctx context.Context) error {
	if ctx.Err() != nil || a.Conn.IsClosed() {
		return nil
	}
	if _, err := a.Conn.Exec(ctx, `set lock_timeout = '10ms'`); err != nil {
		return fmt.Errorf("drop deleters: %w", err)
	}
	warnings, err := catalog.DropUnusedDeleters(ctx, a.Conn, a.Roles)
	if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
		warnings, err = append(warnings, err.Error()), nil
	}
	for _, warning := range warnings {
		a.Log.Warn("a role is left over", "problem", warning)
	}
	if err != nil {
		return err
	}
	if _, err := a.Conn.Exec(ctx, `reset lock_timeout`); err != nil {
		return fmt.Errorf("drop deleters: %w", err)
	}
	return nil
}
