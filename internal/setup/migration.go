package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// CatalogError says that this program is not for the catalog that it found, and why. Nothing in it was touched.
type CatalogError struct{ What string }

// Error ends with what to do.
func (e *CatalogError) Error() string { return e.What }

// recordsSince is the version that brought lapse.migration.
const recordsSince = 5

// checkMigrations compares what is on record of a catalog of version found with the steps that this program has. A catalog of a
// newer program, a step that is not on record, and one that was made from another text are a *CatalogError.
func checkMigrations(ctx context.Context, tx pgx.Tx, found int) error {
	if found > schemas.Version {
		return &CatalogError{fmt.Sprintf("the catalog has version %d, this program knows %d: use a newer lapse", found, schemas.Version)}
	}
	if found < recordsSince {
		return nil
	}
	ours, err := schemas.Checksums()
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `select m.version, m.checksum, m.assumed, m.program from lapse.migration m order by m.version`)
	if err != nil {
		return fmt.Errorf("read what is on record of the catalog's versions: %w", err)
	}
	type applied struct {
		Version  int
		Checksum string
		Assumed  bool
		Program  string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[applied])
	if err != nil {
		return fmt.Errorf("read what is on record of the catalog's versions: %w", err)
	}
	recorded := map[int]bool{}
	for _, is := range all {
		recorded[is.Version] = true
		if is.Checksum == ours[is.Version] {
			continue
		}
		by := "lapse " + is.Program
		if is.Assumed {
			by += ", which took the version for its own"
		}
		return &CatalogError{fmt.Sprintf("version %d of the catalog was made from other files than this program has (by %s): the files of a "+
			"version that was applied are never edited: use the lapse that made it, or a later release", is.Version, by)}
	}
	for _, version := range slices.Sorted(maps.Keys(ours)) {
		if version <= found && !recorded[version] {
			return &CatalogError{fmt.Sprintf("the catalog has version %d, and version %d is not on record as applied: somebody changed "+
				"lapse.migration or lapse.installation: restore them from a backup", found, version)}
		}
	}
	return nil
}

// recordMigrations puts on record that the catalog has reached a version. Of a version that another call made before there was
// a record it is assumed that it was made from this program's text.
func (m *migrating) recordMigrations(ctx context.Context, tx pgx.Tx, reached int) error {
	if reached < recordsSince {
		return nil
	}
	ours, err := schemas.Checksums()
	if err != nil {
		return err
	}
	for _, version := range slices.Sorted(maps.Keys(ours)) {
		if version > reached {
			break
		}
		_, err := tx.Exec(ctx, `
			insert into lapse.migration (version, checksum, assumed, program) values ($1, $2, $3, $4) on conflict do nothing`,
			version, ours[version], !m.applied[version], m.Program)
		if err != nil {
			return fmt.Errorf("record version %d of the catalog: %w", version, err)
		}
	}
	return nil
}
