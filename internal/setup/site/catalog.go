package site

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Options configure an installation.
type Options struct {
	Roles         schemas.Roles
	Slot          string
	AuditRequired bool // false: policies are armed without an auditor
	// Keys are the fingerprints of the keys, by the keys' names. They are recorded once; later differences are a KeysError.
	Keys map[string]string
	// Program is the version of the lapse that installs, for the record.
	Program string
	// Waiting is called with who keeps the catalog from being changed, whenever that changes; it may be nil.
	Waiting func(who string)
}

// KeysError says that the given keys are not those of the installation.
type KeysError struct {
	Name     string // of the first key that differs
	Recorded string // its fingerprint when the database was installed
	Given    string
}

// Error names fingerprints, never keys.
func (e *KeysError) Error() string {
	return fmt.Sprintf("key %s has fingerprint %s, and this database is installed with the one of fingerprint %s: "+
		"use the folder of keys that it was installed with (keys: in lapse.yaml, LAPSE_KEYS or --keys)", e.Name, e.Given, e.Recorded)
}

// Catalog makes the schema "lapse", or brings it to schemas.Version. It returns the version it found, 0 for none.
//
// conn must be of a role that may become the owner (a superuser, the owner itself, or a member of it). It refuses, without touching anything in it,
// a schema that is not ours (*SchemaError), and the catalog of a newer program, or one whose steps were made from other texts (*CatalogError).
//
// Each version is a transaction of its own: a crash leaves a whole version, on record as such, which no command but init accepts, and the next
// call continues from there. Two calls at once take turns, version by version. The lock is on a table of the catalog, which only its owner can
// lock; any login could hold an advisory lock forever. Catalog waits for it until ctx ends.
func Catalog(ctx context.Context, conn *pgx.Conn, o Options) (found int, err error) {
	steps, err := schemas.Migrations(o.Roles)
	if err != nil {
		return 0, err
	}
	return Migrate(ctx, conn, o, steps)
}

// Migrate is Catalog with the given steps.
func Migrate(ctx context.Context, conn *pgx.Conn, o Options, steps []schemas.Migration) (found int, err error) {
	m := &migrating{Options: o, steps: steps}
	found = -1
	for at, done, again, said := 0, false, true, ""; !done; {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			at, done, err = m.next(ctx, tx)
			return err
		})
		switch state := schemas.StateOf(err); {
		case state == schemas.SQLStateLockNotAvailable || state == schemas.SQLStateDeadlockDetected:
			if said, err = m.tellWho(ctx, conn, said); err == nil {
				continue
			}
		case again && at == 0 && (state == schemas.SQLStateUniqueViolation || state == schemas.SQLStateDuplicateSchema):
			again = false // another init has made the schema meanwhile
			continue
		}
		if found < 0 {
			found = at
		}
		if err != nil {
			return found, fmt.Errorf("install the catalog: %w", err)
		}
	}
	return found, nil
}

// migrating is a Catalog call in progress.
type migrating struct {
	Options
	steps []schemas.Migration // from version 1
}

// next brings the catalog one version further, and records the installation. It returns the version that it found, and whether the one that it
// leaves is the last.
func (m *migrating) next(ctx context.Context, tx pgx.Tx) (found int, done bool, err error) {
	there, err := CheckSchema(ctx, tx, m.Roles)
	if err != nil {
		return 0, false, err
	}
	if _, err := tx.Exec(ctx, `set local role `+schemas.Identifier(m.Roles.Owner)); err != nil {
		return 0, false, fmt.Errorf("become %s: %w", m.Roles.Owner, err)
	}
	// If there is no schema the first migration makes it, and fails if another session has made one meanwhile.
	if there {
		// Shorter than deadlock_timeout: CheckSchema has read the table, which blocks a session that holds this lock and alters the table.
		_, err := tx.Exec(ctx, `set local lock_timeout = '400ms';
			do $$ begin if to_regclass('lapse.installation') is not null then lock table lapse.installation in share row exclusive mode; end if; end $$;
			set local lock_timeout to default`)
		if err != nil {
			return 0, false, fmt.Errorf("wait for another init: %w", err)
		}
		if found, err = version(ctx, tx); err != nil {
			return 0, false, err
		}
	}
	if err := checkMigrations(ctx, tx, found, m.steps); err != nil {
		return found, false, err
	}
	reached := found
	if found < len(m.steps) {
		step := &m.steps[found]
		if err := m.migrate(ctx, tx, step); err != nil {
			return found, false, err
		}
		reached = step.Version
	}
	return found, reached == len(m.steps), recordVersion(ctx, tx, m.Options, reached)
}

// tellWho reports who keeps the catalog from being changed, unless it reported the same before. It returns the last report.
func (m *migrating) tellWho(ctx context.Context, conn *pgx.Conn, said string) (string, error) {
	var who string
	err := conn.QueryRow(ctx, `
		select coalesce(string_agg(distinct format('process %s, login %s, application %s', l.pid, coalesce(a.usename, '?'), coalesce(nullif(a.application_name, ''), '?')), '; '), '')
		  from pg_locks l
		  left join pg_stat_activity a on a.pid = l.pid
		 where l.relation = 'lapse.installation'::regclass and l.granted and l.pid <> pg_backend_pid()
		   and l.mode not in ('AccessShareLock', 'RowShareLock')`).Scan(&who)
	if err != nil {
		return said, fmt.Errorf("look who keeps the catalog from being changed: %w", err)
	}
	if who != "" && who != said && m.Waiting != nil {
		m.Waiting(who)
	}
	return cmp.Or(who, said), nil
}

// recordVersion writes the installation row. It refuses a slot name or a key that differs from the one on record: the slot is half of the auditor's
// state, and the keys prove which deletions were Lapse's.
func recordVersion(ctx context.Context, tx pgx.Tx, o Options, version int) error {
	given := o.Keys
	if given == nil {
		given = map[string]string{}
	}
	var slot string
	var keys map[string]string
	err := tx.QueryRow(ctx, `
		insert into lapse.installation (schema_version, slot, audit_required, keys) values ($1, $2, $3, $4)
		on conflict (only_row) do update
		   set schema_version = excluded.schema_version, audit_required = excluded.audit_required,
		       keys = excluded.keys || lapse.installation.keys
		returning slot, keys`, version, o.Slot, o.AuditRequired, given).Scan(&slot, &keys)
	if err != nil {
		return fmt.Errorf("record the installation: %w", err)
	}
	if slot != o.Slot {
		return fmt.Errorf("this database is installed with slot %q, not %q: set slot: %s in lapse.yaml", slot, o.Slot, slot)
	}
	return CompareKeys(keys, given)
}

// CompareKeys returns a *KeysError if one of the fingerprints given is not the recorded one.
func CompareKeys(recorded, given map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if recorded[name] != given[name] {
			return &KeysError{Name: name, Recorded: recorded[name], Given: given[name]}
		}
	}
	return nil
}

func version(ctx context.Context, tx pgx.Tx) (int, error) {
	var there bool
	if err := tx.QueryRow(ctx, `select to_regclass('lapse.installation') is not null`).Scan(&there); err != nil || !there {
		return 0, err
	}
	var n int
	if err := tx.QueryRow(ctx, `select coalesce(max(schema_version), 0) from lapse.installation`).Scan(&n); err != nil {
		return 0, fmt.Errorf("read the catalog's version: %w", err)
	}
	return n, nil
}
