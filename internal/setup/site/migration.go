package site

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// CatalogError says why this program cannot use the catalog that it found. It has touched nothing in it.
type CatalogError struct{ What string }

// Error ends with what to do.
func (e *CatalogError) Error() string { return e.What }

// checkMigrations compares the record of a catalog of version found with this program's steps. It returns a *CatalogError for a catalog of another
// program, for a step that is not on record, and for one that was made from another text.
func checkMigrations(ctx context.Context, tx pgx.Tx, found int, steps []schemas.Migration) error {
	if found == 0 {
		return nil
	}
	if found > len(steps) {
		why, remedy := schemas.OtherVersion(found)
		return &CatalogError{why + ": " + remedy}
	}
	rows, _ := tx.Query(ctx, `select m.version, m.checksum, m.program from lapse.migration m order by m.version`) // CollectRows has its error
	type applied struct {
		Version  int
		Checksum string
		Program  string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[applied])
	if err != nil {
		return fmt.Errorf("read what is on record of the catalog's versions: %w", err)
	}
	recorded := map[int]bool{}
	for _, is := range all {
		recorded[is.Version] = true
		if is.Version > len(steps) || is.Checksum != steps[is.Version-1].Checksum {
			return &CatalogError{fmt.Sprintf("version %d of the catalog was made from other files than this program has (by lapse %s): the files of a "+
				"version that was applied are never edited: use the lapse that made it, or a later release", is.Version, is.Program)}
		}
	}
	for version := 1; version <= found; version++ {
		if !recorded[version] {
			return &CatalogError{fmt.Sprintf("the catalog has version %d, and version %d is not on record as applied: somebody changed "+
				"lapse.migration or lapse.installation: restore them from a backup", found, version)}
		}
	}
	return nil
}

// migrate runs a step and records it. The newest step grants executor and auditor their rights, which are those of the newest catalog.
func (m *migrating) migrate(ctx context.Context, tx pgx.Tx, step *schemas.Migration) error {
	if _, err := tx.Exec(ctx, step.SQL); err != nil {
		return fmt.Errorf("migrate the catalog to version %d: %w", step.Version, err)
	}
	_, err := tx.Exec(ctx, `insert into lapse.migration (version, checksum, program) values ($1, $2, $3)`, step.Version, step.Checksum, m.Program)
	if err != nil {
		return fmt.Errorf("record version %d of the catalog: %w", step.Version, err)
	}
	if step.Version < len(m.steps) {
		return nil
	}
	var grants strings.Builder
	rights := schemas.Rights(m.Roles)
	for i := range rights {
		grants.WriteString(rights[i].Statement() + ";\n")
	}
	if _, err := tx.Exec(ctx, grants.String()); err != nil {
		return fmt.Errorf("give rights on the catalog: %w", err)
	}
	return nil
}
