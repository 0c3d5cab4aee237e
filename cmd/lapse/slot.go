package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/replication"
)

// slotWait is how long the server may wait for transactions that are open when the slot is made.
const slotWait = 10 * time.Minute

// slot makes the slot over the auditor's connection. One that was there and is gone is not made again: what was deleted
// since would be missing from the evidence, and nothing would say so.
//
//	crash after the slot is made, before it is recorded    the next init records the slot's own position
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
	lost := installed.slotStart != 0 && !state.Exists
	if lost && !i.newSlot {
		return fmt.Errorf("replication slot %q, made at %s, is gone: what was deleted since is in no evidence; "+
			"lapse init --new-slot makes another and goes on with that gap, and topics: must then name new topics", i.settings.Slot, installed.slotStart)
	}
	if lost {
		if err := recordSlot(ctx, owner, nil); err != nil {
			return err
		}
	}
	if !state.Exists {
		i.log.Info("making the slot; the server waits for transactions that are open", "slot", i.settings.Slot)
	}
	bounded, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	options, err := slotOptions(ctx, auditor)
	if err != nil {
		return err
	}
	state, made, err := replication.EnsureSlot(bounded, auditor, i.settings.Slot, options...)
	if err != nil {
		return err
	}
	if made {
		i.did("slot", "%s at %s", state.Name, state.Confirmed)
	}
	if lost {
		i.Warnings = append(i.Warnings, fmt.Sprintf("what was deleted between %s and %s is in no evidence", installed.slotStart, state.Confirmed))
	}
	if installed.slotStart == 0 || lost {
		start := state.Confirmed.String()
		return recordSlot(ctx, owner, &start)
	}
	return nil
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

// recordSlot writes down where the slot begins; nil is nowhere yet.
func recordSlot(ctx context.Context, owner *pgx.Conn, start *string) error {
	if _, err := owner.Exec(ctx, `update lapse.installation set slot_start = $1::text::pg_lsn, slot_made_at = clock_timestamp()`, start); err != nil {
		return fmt.Errorf("record the slot: %w", err)
	}
	return nil
}
