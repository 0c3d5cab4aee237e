package setup

import (
	"context"
	"fmt"
	"strings"
)

// HoldsInForceError says that holds are in force, which would go with the catalog: nothing would keep the rows any more, and nothing would
// say that it did, but for the topics.
type HoldsInForceError struct{ Holds []HoldRecord }

// Error names tables and matters.
func (e *HoldsInForceError) Error() string {
	const named = 5
	var names []string
	for i := range e.Holds {
		if i == named {
			names = append(names, fmt.Sprintf("%d more", len(e.Holds)-named))
			break
		}
		names = append(names, fmt.Sprintf("hold %d on %s, matter %s", e.Holds[i].ID, e.Holds[i].Table, e.Holds[i].Matter))
	}
	return fmt.Sprintf("legal holds are in force, and would be forgotten: %s: release them (`lapse hold release`), or say with --drop-holds that they may go",
		strings.Join(names, "; "))
}

// refuseHolds returns a *HoldsInForceError where a hold is in force, unless dropping says that they may go.
func refuseHolds(ctx context.Context, q Querier, dropping bool) error {
	if dropping {
		return nil
	}
	holds, err := ReadHolds(ctx, q, false)
	if err != nil {
		return err
	}
	if len(holds) > 0 {
		return &HoldsInForceError{holds}
	}
	return nil
}
