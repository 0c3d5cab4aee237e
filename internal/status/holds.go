package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/holds"
)

// HeldTable is a table that legal holds cover. It does not say what is held, which may identify a person.
type HeldTable struct {
	Table string `json:"table"`
	Holds int    `json:"holds"` // requested, in force, or being released
}

// readHolds counts the holds that `lapse hold list` lists, by the table that each is on now.
func readHolds(ctx context.Context, conn *pgx.Conn) ([]HeldTable, error) {
	listed, err := holds.Read(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for i := range listed {
		count[listed[i].Table]++
	}
	all := make([]HeldTable, 0, len(count))
	for _, table := range slices.Sorted(maps.Keys(count)) {
		all = append(all, HeldTable{Table: table, Holds: count[table]})
	}
	return all, nil
}

// namedTables is how many tables are named in a line.
const namedTables = 3

// HoldsText is the line about legal holds, "" if there are none.
func (s *Status) HoldsText() string {
	if len(s.Holds) == 0 {
		return ""
	}
	total := 0
	var on []string
	for i := range s.Holds {
		total += s.Holds[i].Holds
		if i < namedTables {
			on = append(on, fmt.Sprintf("%d on %s", s.Holds[i].Holds, s.Holds[i].Table))
		}
	}
	if more := len(s.Holds) - namedTables; more > 0 {
		on = append(on, fmt.Sprintf("the others on %d more tables", more))
	}
	if len(s.Holds) == 1 {
		return fmt.Sprintf("%d not released, on %s: `lapse hold list` has them", total, s.Holds[0].Table)
	}
	return fmt.Sprintf("%d not released, %s: `lapse hold list` has them", total, strings.Join(on, ", "))
}
