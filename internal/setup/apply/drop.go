package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/change"
	"lapse/replication"
	"lapse/schemas"
)

// leavers finds the tables of dropped policies that are in a publication but that no other policy needs there. They would do harm: a
// published table that loses its primary key refuses its own deletes. If a policy was dropped by an apply that did not end, or while its
// table was in use, a change of its own removes the table and does nothing else.
func (a *Applier) leavers(ctx context.Context, changes Changes) (Changes, error) {
	members, err := replication.Members(ctx, a.Conn)
	if err != nil {
		return nil, err
	}
	candidates := changes.unneeded(members)
	if len(candidates) == 0 {
		return changes, nil
	}
	policies, err := a.everKnown(ctx)
	if err != nil {
		return nil, err
	}
	removed := map[schemas.PolicyName]*Change{}
	for i := range changes {
		if changes[i].Kind == change.Removed {
			removed[changes[i].Policy] = &changes[i]
		}
	}
	needed, touched := map[uint32]bool{}, map[schemas.PolicyName][]uint32{}
	for _, p := range policies {
		tables, err := site.Reached(ctx, a.Conn, p.Table, false)
		if err != nil {
			return nil, err
		}
		dropped := p.Dropped || removed[p.Name] != nil
		if dropped {
			touched[p.Name] = tables
			continue
		}
		for _, oid := range tables {
			needed[oid] = true
		}
	}
	for _, p := range policies {
		c := removed[p.Name]
		if c == nil {
			c = &Change{Change: change.Change{
				Kind: change.Unchanged, Policy: p.Name, Table: p.TableName, FromState: schemas.Dropped, ToState: schemas.Dropped,
			}}
		}
		for _, m := range candidates {
			if slices.Contains(touched[p.Name], m.OID) && !needed[m.OID] {
				needed[m.OID] = true // remove it only once
				c.Leave = append(c.Leave, schemas.Identifier(m.Schema, m.Name))
				c.leaving = append(c.leaving, m)
			}
		}
		if removed[p.Name] == nil && len(c.Leave) > 0 {
			changes = append(changes, *c)
		}
	}
	return changes, nil
}

// unneeded are the published tables that no policy of the file whose table was checked needs.
func (cs Changes) unneeded(members []replication.Member) []replication.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m replication.Member) bool {
		return m.Publication == replication.Ledger || m.Publication == replication.Catalog ||
			slices.ContainsFunc(cs, func(c Change) bool { return slices.Contains(c.tables, m.OID) })
	})
}

// policyTable is a policy that is or was in force, and its table.
type policyTable struct {
	Name      schemas.PolicyName
	Dropped   bool
	Table     uint32
	TableName string
}

func (a *Applier) everKnown(ctx context.Context) ([]policyTable, error) {
	rows, _ := a.Conn.Query(ctx, `
		select g.name, g.state = 'dropped', g.table_oid, p.table_name
		  from lapse.gate g
		  join lapse.policy p on p.id = g.policy_id and p.version = g.version
		 order by g.name`) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[policyTable])
	if err != nil {
		return nil, fmt.Errorf("look for dropped policies: %w", err)
	}
	return all, nil
}

// leave removes the tables of a dropped policy from their publications, as far as that makes no session wait. What stays is a warning.
func (a *Applier) leave(ctx context.Context, c *Change) {
	for _, m := range c.leaving {
		table := schemas.Identifier(m.Schema, m.Name)
		err := a.Unpublish(ctx, m.OID)
		if err == nil || a.Conn.IsClosed() {
			continue
		}
		c.Left = append(c.Left, fmt.Sprintf("%s is still published, although no policy needs it there (%v): alter publication %s drop table %s",
			table, err, m.Publication, table))
	}
	c.Warnings = append(c.Warnings, c.Left...)
}

// dropDeleters removes the roles that no longer delete for any policy. From the others it revokes rights that were granted one by one for
// policies that are gone: on a superuser's tables, for which PostgreSQL locks them, and on schemas. It waits for no session.
func (a *Applier) dropDeleters(ctx context.Context) error {
	if ctx.Err() != nil || a.Conn.IsClosed() {
		return nil
	}
	if _, err := a.Conn.Exec(ctx, `set lock_timeout = '10ms'`); err != nil {
		return fmt.Errorf("drop deleters: %w", err)
	}
	for _, step := range []struct {
		left string
		do   func() ([]string, error)
	}{
		{"role", func() ([]string, error) { return access.DropUnusedDeleters(ctx, a.Conn, a.Roles) }},
		{"right", func() ([]string, error) { return access.RevokeExcessRights(ctx, a.Conn, a.Roles) }},
	} {
		warnings, err := step.do()
		if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
			warnings, err = append(warnings, err.Error()), nil
		}
		for _, warning := range warnings {
			a.Log.Warn("a role or right is left over", "what", step.left, "problem", warning)
		}
		if err != nil {
			return err
		}
	}
	if _, err := a.Conn.Exec(ctx, `reset lock_timeout`); err != nil {
		return fmt.Errorf("drop deleters: %w", err)
	}
	return nil
}
