package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup"
	"lapse/internal/yamldoc"
	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

// change is what apply does about one policy.
type change struct {
	planner.Change
	Publish  []string  `json:"publish,omitempty"` // tables that join a publication
	Applied  bool      `json:"applied"`
	Grant    bool      `json:"grant,omitempty"` // the deleter lacks a right, on a partition made since for instance
	Leave    []string  `json:"leave,omitempty"` // tables that leave their publication: no policy needs them there
	NewlyDue *newlyDue `json:"newly_due,omitempty"`
	tables   []uint32  // all that must be published
	leaving  []replication.Member
	failed   bool
}

func (c *change) writes() bool { return c.Writes() || len(c.Publish) > 0 || c.Grant }

// refused lets a problem with the table of one policy refuse the file, unless the policy can do without its table.
func (c *change) refused(err error) error {
	if err == nil {
		return nil
	}
	if c.FallBack(err.Error()) {
		c.Publish, c.Grant, c.tables = nil, false, nil
		return nil
	}
	return fmt.Errorf("policy %s: %w", c.Policy, err)
}

// difference compares the file with what is in force, and refuses what cannot be written.
func (a *applier) difference(ctx context.Context) ([]change, error) {
	differences, err := planner.Difference(ctx, a.conn, a.policyFile, a.prune)
	if err != nil {
		return nil, nothingApplied(err)
	}
	if a.members, err = replication.Members(ctx, a.conn); err != nil {
		return nil, err
	}
	var refused []error
	changes := make([]change, 0, len(differences))
	for _, d := range differences {
		c := change{Change: d}
		if a.arm {
			if err := c.Arm(); err != nil {
				refused = append(refused, err)
				continue
			}
		}
		for _, check := range []func(context.Context, *change) error{a.checkPublished, a.checkDeleter} {
			if c.Resolved == nil {
				break
			}
			if err := check(ctx, &c); err != nil {
				refused = append(refused, c.refused(err))
			}
		}
		changes = append(changes, c)
	}
	if err := errors.Join(refused...); err != nil {
		return nil, nothingApplied(err)
	}
	return changes, a.leavers(ctx, changes)
}

// nothingApplied says what became of the other policies of a file of which one was refused.
func nothingApplied(err error) error {
	var policies yamldoc.Errors
	var identity *replication.IdentityError
	var grant *setup.GrantError
	if errors.As(err, &policies) || errors.As(err, &identity) || errors.As(err, &grant) {
		return fmt.Errorf("%w\nnothing of the file was applied: mend this, or take the policy out of the file, and apply it again", err)
	}
	return err
}

// checkPublished lists what is not published, and refuses what publishing would harm.
func (a *applier) checkPublished(ctx context.Context, c *change) error {
	if a.withoutWAL {
		return nil
	}
	for _, table := range c.Resolved.Published {
		c.tables = append(c.tables, table.OID)
		if !isMember(a.members, table.OID) {
			c.Publish = append(c.Publish, table.Name)
		}
	}
	return checkIdentities(ctx, a.conn, c.tables)
}

// checkDeleter says whether the deleter of the table's owner lacks something, and refuses a table that it cannot be given
// rights on.
func (a *applier) checkDeleter(ctx context.Context, c *change) error {
	err := pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) (err error) {
		c.Grant, err = setup.MissingDeleter(ctx, tx, tableOf(c.Resolved), a.settings.Roles)
		return err
	})
	if err != nil || !c.writes() {
		return err
	}
	return a.mayDelete(ctx, c)
}

// mayDelete says whether the deletion functions can be given their rights on the table. It gives them, and takes them
// back, so that a missing right is known before anything is written. What somebody has locked is found out later.
func (a *applier) mayDelete(ctx context.Context, c *change) error {
	tx, err := a.conn.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `set local lock_timeout = '`+lockTimeout+`'`)
	if err == nil {
		err = setup.EnsureDeleter(ctx, tx, tableOf(c.Resolved), a.settings.Roles)
	}
	if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
		err = nil
	}
	return errors.Join(err, tx.Rollback(ctx))
}

// tableOf is a policy's table, for its deleter.
func tableOf(r *planner.Resolved) setup.Table {
	t := setup.Table{
		OID: r.TableOID, Name: r.Definition.Table, Owner: r.TableOwner, OwnerOID: r.Definition.TableOwner, Column: r.Definition.LockColumn(),
	}
	for _, l := range r.Leaves {
		t.Leaves = append(t.Leaves, setup.Relation(l))
	}
	return t
}

// leavers finds the tables of dropped policies that no other policy needs in a publication. There they would do harm: a
// published table that loses its primary key refuses its own deletes.
func (a *applier) leavers(ctx context.Context, changes []change) error {
	if !slices.ContainsFunc(changes, func(c change) bool { return c.Kind == planner.Removed }) {
		return nil
	}
	inForce, err := planner.LoadInForce(ctx, a.conn)
	if err != nil {
		return err
	}
	dropped, needed := map[schemas.PolicyName]*change{}, map[uint32]bool{}
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
		tables, err := reached(ctx, a.conn, p.TableOID)
		if err != nil {
			return err
		}
		touched[p.Name] = tables
		for _, oid := range tables {
			needed[oid] = needed[oid] || dropped[p.Name] == nil
		}
	}
	for name, c := range dropped {
		for _, m := range a.members {
			if m.Publication != replication.Ledger && slices.Contains(touched[name], m.OID) && !needed[m.OID] {
				c.Leave = append(c.Leave, schemas.Identifier(m.Schema, m.Name))
				c.leaving = append(c.leaving, m)
			}
		}
	}
	return nil
}
