package site

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// Installation is the row of lapse.installation: the settings of the last Install.
type Installation struct {
	SchemaVersion int
	Slot          string
	SlotStart     schemas.LSN // zero: no slot is on record
	SlotMade      bool        // a slot is on record, or was
	AuditRequired bool
	Keys          map[string]string // fingerprints, by the keys' names
}

// ErrNotInstalled says that a database has no catalog.
var ErrNotInstalled = errors.New("this database has no schema lapse: run lapse init")

// ReadInstallation returns the installation, or ErrNotInstalled. If the schema is not Lapse's, it calls nothing in it and returns a *SchemaError.
func ReadInstallation(ctx context.Context, q database.Querier, roles schemas.Roles) (*Installation, error) {
	there, err := CheckSchema(ctx, q, roles)
	if err != nil {
		return nil, fmt.Errorf("look for the installation: %w", err)
	}
	if !there {
		return nil, ErrNotInstalled
	}
	var i Installation
	err = q.QueryRow(ctx, `
		select i.schema_version, i.slot::text, i.slot_start::text, (to_jsonb(i) ->> 'slot_made_at') is not null,
		       i.audit_required, coalesce(to_jsonb(i) -> 'keys', '{}')
		  from lapse.installation i`).
		Scan(&i.SchemaVersion, &i.Slot, &i.SlotStart, &i.SlotMade, &i.AuditRequired, &i.Keys)
	switch {
	case errors.Is(err, pgx.ErrNoRows), schemas.StateOf(err) == schemas.SQLStateUndefinedTable:
		return nil, ErrNotInstalled
	case err != nil:
		return nil, fmt.Errorf("read the installation: %w", err)
	}
	return &i, nil
}
