package hold

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// Table is the table of a hold, with the columns that the hold reads.
type Table struct {
	OID     uint32
	Name    string
	Columns []expiry.Column
}

// Move finds the table that a hold is to be moved to, with that table's numbers of the hold's columns. Different columns are a problem for the
// person who asked: the condition, or the keys, may mean something else there.
func Move(ctx context.Context, tx pgx.Tx, was Table, to string) (now Table, problem string, err error) {
	t, problem, err := findHeld(ctx, tx, to)
	if err != nil || problem != "" {
		return now, problem, err
	}
	if t.OID == was.OID {
		return now, "it is on " + t.Name + " already", nil
	}
	now = Table{OID: t.OID, Name: t.Name}
	there, err := database.Collect[expiry.Column](ctx, tx, `
		select a.attname::text, a.attnum, format_type(a.atttypid, null)
		  from pg_attribute a
		 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'`, t.OID)
	if err != nil {
		return now, "", fmt.Errorf("list the columns of %s: %w", t.Name, err)
	}
	for _, c := range was.Columns {
		same := false
		for _, n := range there {
			switch {
			case n.Name != c.Name:
			case n.Type != c.Type:
				return now, fmt.Sprintf("it reads column %s of type %s, which %s has as %s: place it once more there, then lapse hold release --now this one",
					schemas.Identifier(c.Name), c.Type, t.Name, n.Type), nil
			default:
				now.Columns, same = append(now.Columns, n), true
			}
		}
		if !same {
			return now, fmt.Sprintf("it reads column %s, which %s does not have: place it once more there, then lapse hold release --now this one", schemas.Identifier(c.Name), t.Name), nil
		}
	}
	return now, "", nil
}
