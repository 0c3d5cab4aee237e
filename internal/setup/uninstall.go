package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/policyfile"
	"lapse/replication"
	"lapse/schemas"
)

// UninstallStep is one step of Uninstall. Their order, and what a crash after each leaves, is in doc.go.
type UninstallStep string

// The steps of Uninstall.
const (
	UninstallPolicies     UninstallStep = "policies"
	UninstallSlot         UninstallStep = "slot"
	UninstallPublications UninstallStep = "publications"
	UninstallCatalog      UninstallStep = "catalog"
)

// Uninstaller removes from a database what Install and Apply made.
type Uninstaller struct {
	Session
	Auditor *pgx.Conn // a login that may drop the slot
	Reason  string    // for the record, which goes with the catalog
	// DropHolds says that legal holds that are in force may go too. Otherwise Uninstall refuses, with a *HoldsInForceError.
	DropHolds bool
	// Login opens a session of the login's own, in which indexes that Lapse made are dropped.
	Login func(ctx context.Context) (*pgx.Conn, error)
	// Progress is told of each step that is done; nil is told nothing.
	Progress func(UninstallStep)
}

// Uninstall drops the policies, the indexes that Lapse made for them, the deleters, the slot, the publications and the catalog. Roles other than the deleters stay:
// they belong to the cluster. So do the topics and the keys, which are the proof of what was deleted. It refuses while an
// auditor reads from the slot (replication.ErrSlotActive): what was not read would be in no evidence, and, with a *RolesStayError, where the
// login may not drop the deleters. Where nothing is
// installed it returns ErrNotInstalled. After a crash another Uninstall goes on. The warnings name what is left over.
func (u Uninstaller) Uninstall(ctx context.Context) (warnings []string, err error) {
	installed, err := ReadInstallation(ctx, u.Conn, u.Roles)
	if err != nil {
		return nil, err
	}
	if err := refuseHolds(ctx, u.Conn, installed, u.DropHolds); err != nil {
		return nil, err
	}
	if err := refuseRoles(ctx, u.Conn); err != nil {
		return nil, err
	}
	state, err := replication.ReadSlot(ctx, u.Auditor, installed.Slot)
	if err != nil {
		return nil, err
	}
	if state.Active {
		return nil, &replication.SlotError{
			Slot: installed.Slot, Reason: replication.ErrSlotActive,
			Fix: "stop the executors, run lapse audit --once, and stop the auditor first",
		}
	}
	for _, step := range []struct {
		name UninstallStep
		do   func() error
	}{
		{UninstallPolicies, func() (err error) { warnings, err = u.policies(ctx); return err }},
		{UninstallSlot, func() error { return replication.DropSlot(ctx, u.Auditor, installed.Slot) }},
		{UninstallPublications, func() error { return u.publications(ctx) }},
		{UninstallCatalog, func() error { return u.catalog(ctx, installed) }},
	} {
		if err := step.do(); err != nil {
			return warnings, fmt.Errorf("uninstall: %s: %w", step.name, err)
		}
		if u.Progress != nil {
			u.Progress(step.name)
		}
	}
	return warnings, context.Cause(ctx)
}

// policies drops all of them, as applying an empty file does.
func (u *Uninstaller) policies(ctx context.Context) (warnings []string, err error) {
	a := &Applier{Session: u.Session, AuditRequired: true, Prune: true, Reason: u.Reason, Login: u.Login}
	changes, err := a.Difference(ctx, &policyfile.File{})
	if err != nil {
		return nil, err
	}
	if err := a.Apply(ctx, changes); err != nil {
		return nil, err
	}
	return changes.left(), nil
}

func (cs Changes) left() (left []string) {
	for i := range cs {
		left = append(left, cs[i].Left...)
	}
	return left
}

func (u *Uninstaller) publications(ctx context.Context) error {
	return u.Locked(ctx, "drop the publications", func(tx pgx.Tx) error {
		if err := as(ctx, tx, u.Roles.Owner); err != nil {
			return err
		}
		for _, name := range replication.Publications() {
			if _, err := tx.Exec(ctx, "drop publication if exists "+schemas.Identifier(name)); err != nil {
				return fmt.Errorf("drop publication %q: %w", name, err)
			}
		}
		return nil
	})
}

// catalog drops the schema. What is in it was found to be Lapse's when Uninstall began.
func (u *Uninstaller) catalog(ctx context.Context, installed *Installation) error {
	return u.Locked(ctx, "drop the catalog", func(tx pgx.Tx) error {
		if err := as(ctx, tx, u.Roles.Owner); err != nil {
			return err
		}
		if err := refuseHolds(ctx, tx, installed, u.DropHolds); err != nil {
			return err // placed meanwhile
		}
		var deleters []string
		// One that another database of the cluster needs is on that one's record.
		if err := tx.QueryRow(ctx, `
			select coalesce(array_agg(d.role::text), '{}')
			  from lapse.deleter d
			  join pg_roles r on r.rolname = d.role
			 where not exists (select from pg_shdepend s
			                    where s.refclassid = 'pg_catalog.pg_authid'::regclass and s.refobjid = r.oid
			                      and s.dbid not in (0, (select oid from pg_database where datname = current_database())))`).Scan(&deleters); err != nil {
			return fmt.Errorf("look for deleters: %w", err)
		}
		if len(deleters) > 0 {
			return errors.New("roles are left over, which nothing would name once the catalog is gone: have a superuser drop them " +
				"(lapse policy list says how), and take them out of lapse.deleter: " + list(deleters))
		}
		if _, err := tx.Exec(ctx, "drop schema "+schemas.Identifier(schemas.LedgerSchema)+" cascade"); err != nil {
			return fmt.Errorf("drop schema %s: %w", schemas.LedgerSchema, err)
		}
		return nil
	})
}
