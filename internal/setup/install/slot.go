package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/replication"
	"lapse/schemas"
)

// slotWait is how long the server may wait for transactions that are open when the slot is made.
const slotWait = 10 * time.Minute

// slot makes the slot over the auditor's connection. If it is missing or lost, it is not replaced unless NewSlot is set, because there is
// no evidence of what was deleted since. The log continues after it, with a gap.
//
//	crash after the former slot is given up    no slot, or none on record: nothing is deleted; the next init --new-slot goes on
//	crash after the first slot is made,        the next init records the slot's own position, and restates the policies
//	before it is recorded
//	crash after a later slot is made, before   the same as a slot that is older than a publication: it is not on record, and the
//	it is recorded                             next init --new-slot makes another
func (w *installing) slot(ctx context.Context) error {
	installed, err := site.ReadInstallation(ctx, w.owner.Conn, w.Roles)
	if err != nil {
		return err
	}
	auditor, err := w.Connect(ctx, PlayAuditor)
	if err != nil {
		return err
	}
	defer database.Close(auditor)
	state, err := replication.ReadSlot(ctx, auditor, w.Slot)
	if err != nil {
		return err
	}
	lost, err := slotLost(ctx, auditor, &state, installed)
	switch {
	case err != nil:
		return err
	case lost && !w.NewSlot:
		return w.slotGone(&state, installed.SlotStart)
	case lost:
		if err := w.giveUp(ctx, auditor, &state); err != nil {
			return err
		}
	}
	if state, err = w.ensureSlot(ctx, auditor); err != nil {
		return err
	}
	if installed.SlotStart != 0 && !lost {
		return nil
	}
	arming, err := w.recordSlot(ctx, state.Confirmed)
	if err != nil {
		return err
	}
	if lost {
		w.warn("what was deleted before %s and not read yet is in no evidence", state.Confirmed)
		w.result.Replaced, w.result.SlotAt = true, state.Confirmed
	}
	return w.owner.AdvanceArming(ctx, arming...)
}

// forgetSlot removes the slot from the record before publications are made that are younger. A slot decodes a change with the catalog as it
// was then, so it cannot be read past the time when they did not exist.
func (w *installing) forgetSlot(ctx context.Context, missing []string) error {
	installed, err := site.ReadInstallation(ctx, w.owner.Conn, w.Roles)
	if err != nil {
		return err
	}
	if installed.SlotMade || installed.SlotStart != 0 {
		w.remade = missing
	}
	if installed.SlotStart == 0 {
		return nil
	}
	_, err = w.recordSlot(ctx, 0)
	return err
}

// slotLost reports whether the recorded slot is missing or unusable. A slot that is not ours does not count: it is refused later.
func slotLost(ctx context.Context, conn *pgx.Conn, state *replication.SlotState, installed *site.Installation) (bool, error) {
	formerly := installed.SlotStart != 0 || installed.SlotMade
	if !state.Exists {
		return formerly, nil
	}
	var database string
	if err := conn.QueryRow(ctx, `select pg_catalog.current_database()::text`).Scan(&database); err != nil {
		return false, fmt.Errorf("read the database's name: %w", err)
	}
	err := replication.CheckSlot(*state, database)
	return errors.Is(err, replication.ErrSlotLost) || err == nil && formerly && installed.SlotStart == 0, nil
}

func (w *installing) slotGone(state *replication.SlotState, start schemas.LSN) error {
	what := "is gone"
	switch {
	case !state.Exists && start != 0:
		what = fmt.Sprintf("(made at %s) is gone", start)
	case !state.Exists:
	case len(w.remade) > 0:
		what = fmt.Sprintf("is older than %s, which had been dropped and is made again, and cannot be read past that", list(w.remade))
	case !state.Lost():
		what = "is not on record: a publication had to be made again, past which it cannot be read, or an init --new-slot did not end"
	default:
		what = "is lost: the server has given up what it was to keep for it"
		if state.Invalidation != "" {
			what += " (" + state.Invalidation + ")"
		}
	}
	return fmt.Errorf("replication slot %q %s: what was deleted since is in no evidence; "+
		"lapse init --new-slot makes another, and the log goes on in the same topics, with a gap", w.Slot, what)
}

// giveUp drops the former slot and removes it from the record. From then on nothing is deleted until there is another one and the auditor
// has read from it.
func (w *installing) giveUp(ctx context.Context, auditor *pgx.Conn, state *replication.SlotState) error {
	if state.Exists {
		if err := replication.DropSlot(ctx, auditor, w.Slot); err != nil {
			return err
		}
		what := "was older than a publication, or not on record"
		if state.Lost() {
			what = "was lost"
		}
		w.did("slot", "%s %s, and is dropped", w.Slot, what)
	}
	_, err := w.recordSlot(ctx, 0)
	return err
}

func (w *installing) ensureSlot(ctx context.Context, auditor *pgx.Conn) (state replication.SlotState, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	options, err := slotOptions(ctx, auditor)
	if err != nil {
		return state, err
	}
	if state, err = replication.ReadSlot(ctx, auditor, w.Slot); err != nil {
		return state, err
	}
	if !state.Exists {
		w.Log.Info("making the slot; the server waits for transactions that are open", "slot", w.Slot)
	}
	state, made, err := replication.EnsureSlot(ctx, auditor, w.Slot, options...)
	if err == nil && made {
		w.did("slot", "%s at %s", state.Name, state.Confirmed)
	}
	return state, err
}

// firstFailover is the first version of PostgreSQL whose slots can follow to a standby.
const firstFailover = 170000

// slotOptions asks for a slot that is copied to standbys if the server can do that. It makes no difference on a server without standbys.
func slotOptions(ctx context.Context, conn *pgx.Conn) ([]replication.SlotOption, error) {
	var version int
	if err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return nil, fmt.Errorf("check the server: %w", err)
	}
	if version < firstFailover {
		return nil, nil
	}
	return []replication.SlotOption{replication.WithFailover()}, nil
}

// recordSlot records where the slot begins, zero for no slot, and restates the policies, so that what is in force is in the log above the
// slot's start. It returns the armed ones, which now wait for the auditor.
func (w *installing) recordSlot(ctx context.Context, start schemas.LSN) ([]schemas.PolicyID, error) {
	var at *string
	if start != 0 {
		text := start.String()
		at = &text
	}
	return w.owner.RestateOnly(ctx, "record the slot", func(tx pgx.Tx) (string, error) {
		_, err := tx.Exec(ctx, `update lapse.installation set slot_start = $1::text::pg_lsn, slot_made_at = clock_timestamp()`, at)
		return "restated: the slot was made", err
	})
}
