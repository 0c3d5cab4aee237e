package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/site"
	"lapse/replication"
	"lapse/schemas"
)

// Step is one step of Uninstall. Their order, and what a crash after each leaves, is in doc.go.
type Step string

// Uninstaller removes from a database what Install and Apply made.
type Uninstaller struct {
	site.Session
	Auditor *pgx.Conn // a login that may drop the slot
	Reason  string    // for the record, which goes with the catalog
	Slot    string    // from the settings, if there is no catalog any more
	// DropHolds allows Uninstall to drop legal holds in force. Otherwise it refuses.
	DropHolds bool
	// Login opens a session of the login's own, which drops the indexes that Lapse made.
	Login func(ctx context.Context) (*pgx.Conn, error)
	// Progress is called with each step that is done; may be nil.
	Progress func(Step)
}

// Uninstall drops the indexes that Lapse made, then in one transaction the publications, the catalog with all functions, and the deleters,
// and last the slot. Roles other than the deleters stay, because they belong to the cluster. So do the topics and the keys, which prove
// what was deleted. Before it changes anything it refuses if an auditor reads from the slot (replication.ErrSlotActive), because there
// would be no evidence of what was not read, and if a login may not do all of it (*LackingError). If nothing is installed it returns
// ErrNotInstalled. After a crash another Uninstall continues. The warnings name what is left.
func (u Uninstaller) Uninstall(ctx context.Context) (warnings []string, err error) {
	installed, err := site.ReadInstallation(ctx, u.Conn, u.Roles)
	if errors.Is(err, site.ErrNotInstalled) {
		return nil, u.onlySlot(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	if err := u.check(ctx, installed); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name Step
		do   func() error
	}{
		{"pause", func() error { return u.pause(ctx) }},
		{"indexes", func() (err error) { warnings, err = u.indexes(ctx); return err }},
		{"catalog", func() error {
			more, err := u.catalog(ctx, installed)
			warnings = append(warnings, more...)
			return err
		}},
		{"slot", func() error { return replication.DropSlot(ctx, u.Auditor, installed.Slot) }},
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

// onlySlot drops a slot that an interrupted Uninstall left. It returns absent if there is none.
func (u *Uninstaller) onlySlot(ctx context.Context, absent error) error {
	var left bool
	if err := u.Auditor.QueryRow(ctx, leftSlotSQL, u.Slot).Scan(&left); err != nil {
		return fmt.Errorf("look for a slot that is left: %w", err)
	}
	if !left {
		return absent
	}
	if err := replication.DropSlot(ctx, u.Auditor, u.Slot); err != nil {
		return err
	}
	if u.Progress != nil {
		u.Progress("slot")
	}
	return nil
}

// check refuses an Uninstall that could not be completed. It changes nothing.
func (u *Uninstaller) check(ctx context.Context, installed *site.Installation) error {
	if err := refuseHolds(ctx, u.Conn, u.DropHolds); err != nil {
		return err
	}
	deleters, err := readDeleters(ctx, u.Conn)
	if err != nil {
		return err
	}
	made, err := apply.MadeIndexes(ctx, u.Conn)
	if err != nil {
		return err
	}
	lacking, err := lackingGrants(ctx, u.Conn, lackingSQL(u.Roles.Owner, deleters, made))
	if err != nil {
		return err
	}
	state, err := replication.ReadSlot(ctx, u.Auditor, installed.Slot)
	if err != nil {
		return err
	}
	if state.Exists {
		more, err := lackingGrants(ctx, u.Auditor, lackingReplicationSQL)
		if err != nil {
			return err
		}
		lacking = append(lacking, more...)
	}
	switch {
	case len(lacking) > 0:
		return &LackingError{u.Conn.Config().User, lacking}
	case state.Active:
		return &replication.SlotError{
			Slot: installed.Slot, Reason: replication.ErrSlotActive,
			Fix: "stop the executors, run lapse audit --once, and stop the auditor first",
		}
	}
	return nil
}

// pause stops every deletion, because the next step drops the indexes that find the rows.
func (u *Uninstaller) pause(ctx context.Context) error {
	return u.Gated(ctx, "pause every deletion", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			insert into lapse.halt (halted, reason)
			select true, $1 where not coalesce((select h.halted from lapse.halt h order by h.id desc limit 1), false)`, strings.TrimSuffix("lapse uninstall: "+u.Reason, ": "))
		return err
	})
}

// indexes drops the indexes that Lapse made. It names one that stays because it is in use all the time.
func (u *Uninstaller) indexes(ctx context.Context) (left []string, err error) {
	made, err := apply.MadeIndexes(ctx, u.Conn)
	if err != nil {
		return nil, err
	}
	return (&apply.Applier{Session: u.Session, Login: u.Login}).DropMadeIndexes(ctx, made), nil
}

// catalog drops everything except indexes and slot, in one transaction. Uninstall has checked that the contents of the schema are Lapse's.
func (u *Uninstaller) catalog(ctx context.Context, installed *site.Installation) (warnings []string, err error) {
	err = u.Gated(ctx, "drop the catalog", func(tx pgx.Tx) error {
		warnings = nil
		if err := refuseHolds(ctx, tx, u.DropHolds); err != nil {
			return err // a hold was placed meanwhile
		}
		deleters, err := readDeleters(ctx, tx)
		if err != nil {
			return err
		}
		for _, name := range replication.Publications() {
			if _, err := tx.Exec(ctx, "drop publication if exists "+schemas.Identifier(name)); err != nil {
				return fmt.Errorf("drop publication %q: %w", name, err)
			}
		}
		if _, err := tx.Exec(ctx, "drop schema "+schemas.Identifier(schemas.LedgerSchema)+" cascade"); err != nil {
			return fmt.Errorf("drop schema %s: %w", schemas.LedgerSchema, err)
		}
		for _, name := range deleters {
			warning, err := access.DropDeleter(ctx, tx, name)
			if err != nil {
				return fmt.Errorf("drop role %s: %w", name, err)
			}
			if warning != "" {
				warnings = append(warnings, warning)
			}
		}
		return nil
	})
	return warnings, err
}
