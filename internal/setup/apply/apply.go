package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/planner/change"
	"lapse/replication"
	"lapse/schemas"
)

// applying is an Apply call in progress.
type applying struct {
	*Applier
	changes Changes
	members []replication.Member // what is published, as read once
	joined  map[uint32]bool      // what this Apply has published
	failed  []error
}

// Apply brings the changes of Difference into force, in the steps of doc.go. A policy that fails does not stop the others. Each change that
// is in force when it returns has Applied set. After a crash, repeat it with a new Difference.
func (a *Applier) Apply(ctx context.Context, changes Changes) error {
	w := &applying{Applier: a, changes: changes, joined: map[uint32]bool{}}
	if a.AuditRequired {
		var err error
		if w.members, err = replication.Members(ctx, a.Conn); err != nil {
			return err
		}
	}
	w.each(ctx, func(c *Change) error {
		if !c.Change.Writes() || !c.Careful() {
			return nil
		}
		return w.write(ctx, c)
	})
	w.each(ctx, func(c *Change) error {
		if len(c.Build) > 0 {
			if err := w.build(ctx, c); err != nil {
				return err
			}
		}
		switch {
		case !c.Applied && c.Change.Writes():
			return w.write(ctx, c)
		case len(c.Publish) > 0 || c.Grant:
			return w.complete(ctx, c)
		}
		c.Applied = c.Applied || len(c.Build) > 0
		return nil
	})
	w.each(ctx, func(c *Change) error {
		w.leave(ctx, c)
		left := w.DropMadeIndexes(ctx, c.unneeded)
		c.Left, c.Warnings = append(c.Left, left...), append(c.Warnings, left...)
		return nil
	})
	if err := w.dropDeleters(ctx); err != nil {
		w.failed = append(w.failed, err)
	}
	switch {
	case len(w.failed) > 0:
		return errors.Join(w.failed...)
	case ctx.Err() == nil && w.Conn.IsClosed():
		return errConnectionLost
	}
	return context.Cause(ctx)
}

var errConnectionLost = errors.New("the connection was lost before all was done: run this again")

// each does one step for each policy for which no earlier step has failed.
func (w *applying) each(ctx context.Context, step func(c *Change) error) {
	applying := w.far("applying")
	for i := range w.changes {
		applying(i+1, len(w.changes))
		c := &w.changes[i]
		if ctx.Err() != nil || w.Conn.IsClosed() || c.failed {
			continue
		}
		if err := step(c); err != nil {
			c.failed = true
			w.failed = append(w.failed, fmt.Errorf("policy %s: %w", c.Policy, err))
		}
	}
}

// write brings one policy into force: version, functions, gate and state and, if it needs its table, the deleter's rights and the
// publications, in one transaction.
//
//	crash before its commit    nothing of this policy is there
//	crash after its commit     it is there whole; the next Difference does not have it
//	crash before its arming    the executor records the position that the auditor must pass
func (w *applying) write(ctx context.Context, c *Change) error {
	id, err := w.writeOnce(ctx, c, c.Resolved != nil && !c.Careful())
	if state := schemas.StateOf(err); c.Grant && c.Careful() && (state == schemas.SQLStateInsufficientPrivilege || state == schemas.SQLStateUndefinedObject) {
		id, err = w.writeOnce(ctx, c, true) // a missing deleter cannot own the functions
	}
	if err != nil {
		return err
	}
	c.Applied = true
	switch c.ToState {
	case schemas.Arming:
		err = w.AdvanceArming(ctx, id)
	case schemas.Observing:
		err = w.recordCount(ctx, c, id)
	}
	if err != nil {
		return err
	}
	if w.Tell != nil {
		w.Tell(c)
	}
	return nil
}

func (w *applying) writeOnce(ctx context.Context, c *Change, needsTable bool) (id schemas.PolicyID, err error) {
	err = w.Gated(ctx, "apply policy "+string(c.Policy), func(tx pgx.Tx) error {
		if needsTable {
			if err := access.EnsureDeleter(ctx, tx, tableOf(c.Resolved), w.Roles); err != nil {
				return err
			}
		}
		if id, _, err = change.Write(ctx, tx, &c.Change, w.Roles, w.Reason); err != nil || !needsTable {
			return err
		}
		return w.Publish(ctx, tx, w.missing(c), w.changes.updated())
	})
	if err == nil && needsTable {
		w.published(c)
	}
	return id, err
}

// complete adds a policy in force to the publications that it lacks, and gives its deleter missing rights.
func (w *applying) complete(ctx context.Context, c *Change) error {
	err := w.Locked(ctx, "publish the tables of policy "+string(c.Policy), func(tx pgx.Tx) error {
		if err := access.EnsureDeleter(ctx, tx, tableOf(c.Resolved), w.Roles); err != nil {
			return err
		}
		return w.Publish(ctx, tx, w.missing(c), w.changes.updated())
	})
	if err != nil {
		return err
	}
	w.published(c)
	c.Applied = true
	return nil
}

// missing are the tables of a change that were not published when Apply began, nor by it since. Only these are locked.
func (w *applying) missing(c *Change) []uint32 {
	var missing []uint32
	for _, oid := range w.changes.updated().NotPublished(w.members, c.tables) {
		if !w.joined[oid] {
			missing = append(missing, oid)
		}
	}
	return missing
}

func (w *applying) published(c *Change) {
	for _, oid := range c.tables {
		w.joined[oid] = true
	}
}
