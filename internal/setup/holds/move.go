package holds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/hold"
	"lapse/schemas"
)

// Move moves a hold to another table, for instance when its own was made again under another name, with the same keys or the same
// condition. Its former tables, as far as they exist, stay held. Move returns when no batch that did not see this can commit any more.
//
//	crash before the first commit     nothing has happened
//	crash after it                    every batch that begins obeys the hold on both tables; the next command that places, moves, releases
//	                                  or lists holds, or init, waits for the batches that did not see it, and says effective
//	crash after the second            all is done
func Move(ctx context.Context, s *site.Session, id schemas.HoldID, to, reason string) error {
	err := s.Locked(ctx, fmt.Sprintf("move hold %d", id), func(tx pgx.Tx) error {
		if err := lockHolds(ctx, tx, s.Roles); err != nil {
			return err
		}
		if err := checkHoldsPublished(ctx, tx); err != nil {
			return err
		}
		was, err := heldTable(ctx, tx, id)
		if err != nil {
			return err
		}
		table, problem, err := hold.Move(ctx, tx, was, to)
		if err != nil {
			return err
		}
		if problem != "" {
			return &Error{fmt.Sprintf("hold %d: %s", id, problem)}
		}
		columns, err := json.Marshal(append([]expiry.Column{}, table.Columns...))
		if err != nil {
			return fmt.Errorf("write the columns: %w", err)
		}
		_, err = tx.Exec(ctx, `
			insert into lapse.hold_state (id, hold, state, reason, table_oid, table_name, columns)
			select coalesce(max(s.id), 0) + 1, $1, 'requested', $2, $3, $4, lapse.with_meaning($3, $5::text::jsonb) from lapse.hold_state s`,
			id, reason, table.OID, table.Name, string(columns))
		if err != nil {
			return fmt.Errorf("write where hold %d is: %w", id, err)
		}
		if err := followHolds(ctx, tx); err != nil {
			return err
		}
		return setHoldVersion(ctx, tx)
	})
	if err != nil {
		return err
	}
	if err := Finish(ctx, s); err != nil {
		return &PendingError{id, err}
	}
	return nil
}

// heldTable reads the table of a hold, if the hold can be moved.
func heldTable(ctx context.Context, tx pgx.Tx, id schemas.HoldID) (was hold.Table, err error) {
	var state, columns string
	err = tx.QueryRow(ctx, `
		select s.state, coalesce(e.table_oid, 0), coalesce(e.table_name, h.table_name), coalesce(e.columns, h.columns)::text
		  from lapse.hold h
		 cross join lateral (select s.state from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) s
		  left join lapse.enforced_holds() e on e.hold = h.id
		 where h.id = $1`, id).Scan(&state, &was.OID, &was.Name, &columns)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return was, &Error{fmt.Sprintf("there is no hold %d", id)}
	case err != nil:
		return was, fmt.Errorf("check hold %d: %w", id, err)
	case was.OID == 0 || state == "released":
		return was, &Error{fmt.Sprintf("hold %d is released already: place it once more", id)}
	case state == "releasing":
		return was, &Error{fmt.Sprintf("hold %d is being released: place it once more (lapse hold show %d --content says what it is on)", id, id)}
	}
	if err := json.Unmarshal([]byte(columns), &was.Columns); err != nil {
		return was, fmt.Errorf("read the columns of hold %d: %w", id, err)
	}
	return was, nil
}

// Faults records which tables holds cover now. It lists what is wrong with them, each with what to do, and the policies that stop because
// they cannot obey a hold.
func Faults(ctx context.Context, s *site.Session) (faults []string, err error) {
	err = pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
		if err := access.Become(ctx, tx, s.Roles.Owner); err != nil {
			return err
		}
		if err := followHolds(ctx, tx); err != nil {
			return err
		}
		if faults, err = ReadFaults(ctx, tx); err != nil {
			return err
		}
		stopped, err := stoppedPolicies(ctx, tx)
		faults = append(faults, stopped...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check what holds are on: %w", err)
	}
	return faults, nil
}

// ReadFaults lists what is wrong with the tables of enforced holds, each with what to do. Any login of Lapse's may call it.
func ReadFaults(ctx context.Context, q database.Querier) ([]string, error) {
	rows, _ := q.Query(ctx, `select f.fault from lapse.hold_faults() f`) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("check the tables of holds: %w", err)
	}
	return all, nil
}
