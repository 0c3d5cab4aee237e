package uninstall

import (
	"context"
	"fmt"
	"strings"

	"lapse/internal/setup/holds"
	"lapse/planner/database"
)

// holdsInForce is the error if holds are in force, which would be dropped with the catalog: the rows would no longer be kept, and only the
// topics would show that they were. It names tables and matters.
func holdsInForce(holds []holds.Record) error {
	const named = 5
	var names []string
	for i := range holds {
		if i == named {
			names = append(names, fmt.Sprintf("%d more", len(holds)-named))
			break
		}
		names = append(names, fmt.Sprintf("hold %d on %s, matter %s", holds[i].ID, holds[i].Table, holds[i].Matter))
	}
	return fmt.Errorf("legal holds are in force, and would be forgotten: %s: release them (`lapse hold release`), or say with --drop-holds that they may go",
		strings.Join(names, "; "))
}

// refuseHolds returns an error if a hold is in force, unless dropping allows that.
func refuseHolds(ctx context.Context, q database.Querier, dropping bool) error {
	if dropping {
		return nil
	}
	holds, err := holds.Read(ctx, q, false)
	if err != nil {
		return err
	}
	if len(holds) > 0 {
		return holdsInForce(holds)
	}
	return nil
}
