package apply

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// checkDeleters checks whether the deleters of the tables' owners lack something, and whether to try the grants: missing rights are known
// before anything is written.
func (a *Applier) checkDeleters(ctx context.Context, checks []checked) error {
	if a.Conn == nil {
		return nil
	}
	checking := a.far("checking")
	return database.Pinned(ctx, a.Conn, func(tx pgx.Tx) error {
		for i := range checks {
			checking(i+1, len(checks))
			c := &checks[i]
			if c.Change == nil {
				continue
			}
			d, err := access.InspectDeleter(ctx, tx, tableOf(c.Resolved), a.Roles)
			if err != nil {
				return err
			}
			c.Grant, c.Grants = d.Lacks, d.Grants
			c.tries = (d.Lacks || !d.MayGive) && c.Writes()
		}
		return nil
	})
}

// tryDeleters grants deleters their rights and rolls that back, for one owner's tables in one transaction: rights that tables share are
// granted once. If a table is locked, its problems are found later.
func (a *Applier) tryDeleters(ctx context.Context, checks []checked) error {
	byOwner, owners := map[uint32][]*checked{}, []uint32{}
	for i := range checks {
		if c := &checks[i]; c.tries {
			owner := c.Resolved.Definition.TableOwner
			if byOwner[owner] == nil {
				owners = append(owners, owner)
			}
			byOwner[owner] = append(byOwner[owner], c)
		}
	}
	for _, owner := range owners {
		for all := byOwner[owner]; len(all) > 0; {
			passed, err := a.tryTogether(ctx, all)
			if passed == 0 {
				var grant *access.GrantError
				var circle *access.CircleError
				switch {
				case errors.As(err, &grant) || errors.As(err, &circle):
					all[0].deleter = []error{err}
				case err != nil:
					return err
				}
				passed = 1
			}
			all = all[passed:]
		}
	}
	return nil
}

// triesAtMost bounds a transaction of tries, because it keeps other sessions from changing deleters.
const triesAtMost = 500 * time.Millisecond

// tryTogether returns how many passed. If none did, err is the first one's, before which nothing was granted, so that it names everything
// that is missing.
func (a *Applier) tryTogether(ctx context.Context, all []*checked) (passed int, err error) {
	err = database.Pinned(ctx, a.Conn, func(tx pgx.Tx) error {
		if err := site.SetLockTimeout(ctx, tx, site.LockTimeout); err != nil {
			return err
		}
		for began := time.Now(); passed < len(all) && (passed == 0 || time.Since(began) < triesAtMost); passed++ {
			if passed > 0 { // the first was granted what they share
				d, err := access.InspectDeleter(ctx, tx, tableOf(all[passed].Resolved), a.Roles)
				if err != nil {
					return err
				}
				if !d.Lacks && d.MayGive {
					continue
				}
			}
			if err := access.EnsureDeleter(ctx, tx, tableOf(all[passed].Resolved), a.Roles); err != nil {
				return err
			}
		}
		return nil
	})
	if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
		err = nil
	}
	return passed, err
}

// tableOf is a policy's table, for its deleter.
func tableOf(r *resolve.Resolved) access.Table {
	t := access.Table{
		OID: r.TableOID, Name: r.Definition.Table, Owner: r.TableOwner, OwnerOID: r.Definition.TableOwner, Column: r.Definition.LockColumn(),
	}
	for _, l := range r.Leaves {
		t.Leaves = append(t.Leaves, access.Relation(l))
	}
	return t
}
