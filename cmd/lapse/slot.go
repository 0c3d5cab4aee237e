package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

// slotWait is how long the server may wait for transactions that are open when the slot is made.
const slotWait = 10 * time.Minute

// slot makes the slot over the auditor's connection. One that was there and is gone, or that the server gave up, is not made
// again unless somebody says so: what was deleted since is in no evidence. The log goes on after it, with a gap.
//
//	crash after the former slot is given up    no slot, or none on record: nothing is deleted; the next init --new-slot goes on
//	crash after the first slot is made,        the next init records the slot's own position, and restates the policies
//	before it is recorded
//	crash after a later slot is made, before   the same as a slot that is older than a publication: it is not on record, and the
//	it is recorded                             next init --new-slot makes another
func (i *initialiser) slot(ctx context.Context, owner *pgx.Conn) error {
	installed, err := readInstallation(ctx, owner, i.settings.Roles)
	if err != nil {
		return err
	}
	auditor, err := connect(ctx, i.settings.Database.Auditor, "", "lapse init")
	if err != nil {
		return err
	}
	defer hangUp(auditor)
	state, err := replication.ReadSlot(ctx, auditor, i.settings.Slot)
	if err != nil {
		return err
	}
	lost, err := i.lostSlot(&state, installed)
	if err != nil {
		return err
	}
	if lost && !i.newSlot {
		return i.slotGone(&state, installed.slotStart)
	}
	if lost {
		if err := i.giveUp(ctx, owner, auditor, &state); err != nil {
			return err
		}
	}
	if state, err = i.ensureSlot(ctx, auditor); err != nil {
		return err
	}
	if installed.slotStart != 0 && !lost {
		return nil
	}
	start := state.Confirmed.String()
	if err := i.recordSlot(ctx, owner, &start); err != nil {
		return err
	}
	if lost {
		i.Warnings = append(i.Warnings, fmt.Sprintf("what was deleted before %s and not read yet is in no evidence", state.Confirmed))
		i.goesOn(ctx, owner)
	}
	return nil
}

// forgetSlot takes the slot off the record before publications are made that it is older than. A slot decodes a change with the
// catalog as it was then: it cannot be read past the time when they were not there.
func (i *initialiser) forgetSlot(ctx context.Context, owner *pgx.Conn, missing []string) error {
	installed, err := readInstallation(ctx, owner, i.settings.Roles)
	if err != nil {
		return err
	}
	if installed.slotStart != 0 || installed.slotMade {
		i.remade = missing
	}
	if installed.slotStart == 0 {
		return nil
	}
	return i.recordSlot(ctx, owner, nil)
}

// lostSlot says whether the slot that was made is gone, or of no use any more. One that is not ours is neither: it is refused.
func (i *initialiser) lostSlot(state *replication.SlotState, installed *installation) (bool, error) {
	formerly := installed.slotStart != 0 || installed.slotMade
	database, err := i.settings.Database.Name()
	if err != nil || !state.Exists {
		return formerly, err
	}
	err = replication.CheckSlot(*state, database)
	return errors.Is(err, replication.ErrSlotLost) || err == nil && formerly && installed.slotStart == 0, nil
}

func (i *initialiser) slotGone(state *replication.SlotState, start schemas.LSN) error {
	what := "is gone"
	switch {
	case !state.Exists && start != 0:
		what = fmt.Sprintf("(made at %s) is gone", start)
	case !state.Exists:
	case len(i.remade) > 0:
		what = fmt.Sprintf("is older than %s, which had been dropped and is made again, and cannot be read past that", joined(i.remade))
	case !state.Lost():
		what = "is not on record: a publication had to be made again, past which it cannot be read, or an init --new-slot did not end"
	default:
		what = "is lost: the server has given up what it was to keep for it"
		if state.Invalidation != "" {
			what += " (" + state.Invalidation + ")"
		}
	}
	return fmt.Errorf("replication slot %q %s: what was deleted since is in no evidence; "+
		"lapse init --new-slot makes another, and the log goes on in the same topics, with a gap", i.settings.Slot, what)
}

// giveUp forgets the former slot. Nothing is deleted from then on until there is another and the auditor has read from it.
func (i *initialiser) giveUp(ctx context.Context, owner, auditor *pgx.Conn, state *replication.SlotState) error {
	if state.Exists {
		if err := replication.DropSlot(ctx, auditor, i.settings.Slot); err != nil {
			return err
		}
		what := "was older than a publication, or not on record"
		if state.Lost() {
			what = "was lost"
		}
		i.did("slot", "%s %s, and is dropped", i.settings.Slot, what)
	}
	return i.recordSlot(ctx, owner, nil)
}

func (i *initialiser) ensureSlot(ctx context.Context, auditor *pgx.Conn) (state replication.SlotState, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	options, err := slotOptions(ctx, auditor)
	if err != nil {
		return state, err
	}
	if state, err = replication.ReadSlot(ctx, auditor, i.settings.Slot); err != nil {
		return state, err
	}
	if !state.Exists {
		i.log.Info("making the slot; the server waits for transactions that are open", "slot", i.settings.Slot)
	}
	state, made, err := replication.EnsureSlot(ctx, auditor, i.settings.Slot, options...)
	if err == nil && made {
		i.did("slot", "%s at %s", state.Name, state.Confirmed)
	}
	return state, err
}

// goesOn says how the log goes on with the slot, as far as that can be looked at.
func (i *initialiser) goesOn(ctx context.Context, owner *pgx.Conn) {
	const look = "lapse history shows where the log and the database stand to each other"
	if err := i.settings.RequireKafka(); err != nil {
		i.Next = append(i.Next, "if the log and the database are one history, the log goes on with a gap that begins at its end; "+look)
		return
	}
	p, err := i.compareHistory(ctx, owner, i.settings, checkPinned)
	switch {
	case err != nil:
		i.Warnings = append(i.Warnings, fmt.Sprintf("how the log goes on could not be looked at: %v; %s", err, look))
	case p.needsPerson():
		i.Warnings = append(i.Warnings, p.verdict())
		i.Next = append(i.Next, look+", and what to type")
	case p.Outcome == audit.OutcomeNew:
	case p.found != nil:
		i.Next = append(i.Next, fmt.Sprintf("lapse audit or lapse serve: the log goes on in the same topics, with a gap from %s to the slot",
			p.found.LogEnd))
	}
}

// firstFailover is the first version of PostgreSQL whose slots can follow to a standby.
const firstFailover = 170000

// slotOptions asks for a slot that is copied to standbys where the server can do that. A server without standbys is not
// affected.
func slotOptions(ctx context.Context, conn *pgx.Conn) ([]replication.SlotOption, error) {
	var version int
	if err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return nil, fmt.Errorf("look at the server: %w", err)
	}
	if version < firstFailover {
		return nil, nil
	}
	return []replication.SlotOption{replication.WithFailover()}, nil
}

// recordSlot writes down where the slot begins, nil being nowhere yet, and restates the policies, so that what is in force is in
// the log behind the slot. Those that are armed wait for the auditor.
func (i *initialiser) recordSlot(ctx context.Context, owner *pgx.Conn, start *string) error {
	var arming []schemas.PolicyID
	err := retryGated(ctx, owner, i.log, "record the slot", i.settings.Roles, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update lapse.installation set slot_start = $1::text::pg_lsn, slot_made_at = clock_timestamp()`, start)
		if err != nil {
			return err
		}
		arming, err = planner.RestateAll(ctx, tx, "restated: the slot was made")
		return err
	})
	if err != nil {
		return fmt.Errorf("record the slot: %w", err)
	}
	if start == nil {
		return nil
	}
	return noteArmings(ctx, owner, arming)
}
