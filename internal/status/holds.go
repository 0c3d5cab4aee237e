package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
)

// HeldTable is a table that legal holds cover. It does not say what is held, which may identify a person.
type HeldTable struct {
	Table string `json:"table"`
	Holds int    `json:"holds"` // requested, in force, or being released
}

// readHolds counts the holds that are not released.
func readHolds(ctx context.Context, conn *pgx.Conn) ([]HeldTable, error) {
	all, err := database.Collect[HeldTable](ctx, conn, `
		select h.table_name, count(*)::int
		  from lapse.hold h
		 where (select s.state from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) <> 'released'
		 group by h.table_name
		 order by h.table_name`)
	if err != nil {
		return nil, fmt.Errorf("count legal holds: %w", err)
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
