package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// checkDeleter checks whether the deleter of the table's owner lacks something, and whether to try the grants: missing rights are known
// before anything is written.
func (a *Applier) checkDeleter(ctx context.Context, c *Change) (tries bool, err error) {
	if a.Conn == nil {
		return false, nil
	}
	var ready bool
	err = pgx.BeginFunc(ctx, a.Conn, func(tx pgx.Tx) error {
		d, err := access.InspectDeleter(ctx, tx, tableOf(c.Resolved), a.Roles)
		c.Grant, c.Grants, ready = d.Lacks, d.Grants, !d.Lacks && d.MayGive
		return err
	})
	return err == nil && !ready && c.Writes(), err
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
	tx, err := a.Conn.Begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("try the rights of %s: %w", a.Roles.Deleter(all[0].Resolved.Definition.TableOwner), err)
	}
	began := time.Now()
	err = site.SetLockTimeout(ctx, tx, site.LockTimeout)
	for err == nil && passed < len(all) && (passed == 0 || time.Since(began) < triesAtMost) {
		if err = access.EnsureDeleter(ctx, tx, tableOf(all[passed].Resolved), a.Roles); err == nil {
			passed++
		}
	}
	if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
		err = nil
	}
	return passed, errors.Join(err, tx.Rollback(ctx))
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
