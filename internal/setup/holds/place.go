package holds

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/planner/expiry"
	"lapse/planner/hold"
	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// Error says why a hold was not placed or released, to the person who asked.
type Error struct{ Problem string }

func (e *Error) Error() string { return e.Problem }

// PendingError says that every new batch obeys a hold, but that a batch that began before may still be running.
type PendingError struct {
	Hold  schemas.HoldID
	cause error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("hold %d is on record, and every batch that begins obeys it; but a batch that began before it may still commit (lapse hold list goes on waiting): %s",
		e.Hold, e.cause)
}

// Unwrap returns the error that ended the wait.
func (e *PendingError) Unwrap() error { return e.cause }

// Order is a hold to be placed.
type Order struct {
	hold.Request
	Matter string
	Reason string
}

// Placed is a hold in force.
type Placed struct {
	ID       schemas.HoldID
	Hold     *hold.Hold // what it covers
	Warnings []string   // what a person should do
}

// Place places a hold, and returns when no batch that did not see it can commit any more. The same hold for the same matter is not placed
// twice while it is in force.
//
//	crash before the first commit     nothing has happened
//	crash after it                    the hold is requested: every batch that begins obeys it; the next command that places, releases
//	                                  or lists holds, or init, waits for the batches that did not see it, and says effective
//	crash after the second            all is done
func Place(ctx context.Context, s *site.Session, order Order) (placed Placed, err error) {
	err = pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
		if err := access.Become(ctx, tx, ""); err != nil { // as the login, which needs the right to make temporary tables
			return err
		}
		var problem string
		if placed.Hold, problem, err = hold.Resolve(ctx, tx, order.Request); err == nil && problem != "" {
			err = &Error{problem}
		}
		return err
	})
	if err != nil {
		return Placed{}, err
	}
	err = s.Locked(ctx, "place a hold", func(tx pgx.Tx) error {
		if err := lockHolds(ctx, tx, s.Roles); err != nil {
			return err
		}
		if err := checkHoldsPublished(ctx, tx); err != nil {
			return err
		}
		if placed.ID, err = sameHold(ctx, tx, placed.Hold, order.Matter); err != nil || placed.ID != 0 {
			return err
		}
		if placed.ID, err = insertHold(ctx, tx, placed.Hold, order); err != nil {
			return err
		}
		stopped, err := stoppedPolicies(ctx, tx)
		placed.Warnings = append(placed.Hold.Warnings, stopped...)
		return err
	})
	if err != nil {
		return Placed{}, err
	}
	if err := Finish(ctx, s); err != nil {
		return placed, &PendingError{placed.ID, err}
	}
	return placed, nil
}

// lockHolds makes the rest of the transaction run as the catalog's owner, and keeps other sessions from changing holds until its end.
// Batches can still read them.
func lockHolds(ctx context.Context, tx pgx.Tx, roles schemas.Roles) error {
	if err := access.Become(ctx, tx, roles.Owner); err != nil {
		return err
	}
	// The gates come first, as in every transaction that waits for all batches.
	for _, table := range []string{"lapse.gate in row exclusive", "lapse.hold in share row exclusive"} {
		if _, err := tx.Exec(ctx, "lock table "+table+" mode"); err != nil {
			return fmt.Errorf("lock the holds: %w", err)
		}
	}
	return nil
}

// checkHoldsPublished refuses to place a hold that the audit would never see, for instance after an interrupted init.
func checkHoldsPublished(ctx context.Context, tx pgx.Tx) error {
	var published bool
	err := tx.QueryRow(ctx, `
		select not i.audit_required
		       or (select count(*) = 2 from pg_publication_rel m join pg_publication p on p.oid = m.prpubid
		            where p.pubname = $1 and m.prrelid in ('lapse.hold'::regclass, 'lapse.hold_state'::regclass))
		  from lapse.installation i`, replication.Catalog).Scan(&published)
	if err != nil {
		return fmt.Errorf("look whether holds are published: %w", err)
	}
	if !published {
		return errors.New("holds are not in publication lapse_catalog, so that there would be no evidence of this one: run lapse init first")
	}
	return nil
}

// sameHold finds a hold in force with the same contents for the same matter; 0 for none. One that is being released does not count.
func sameHold(ctx context.Context, tx pgx.Tx, hold *hold.Hold, matter string) (schemas.HoldID, error) {
	rows, _ := tx.Query(ctx, `
		select h.id, h.digest, c.salt
		  from lapse.hold h
		  join lapse.hold_content c on c.hold = h.id
		 where coalesce((select m.table_oid from lapse.hold_state m where m.hold = h.id and m.table_oid is not null order by m.id desc limit 1), h.table_oid) = $1
		   and h.matter = $2
		   and (select s.state from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) in ('requested', 'effective')
		 order by h.id`, hold.TableOID, matter) // CollectRows has its error
	type known struct {
		ID     schemas.HoldID
		Digest []byte
		Salt   []byte
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[known])
	if err != nil {
		return 0, fmt.Errorf("look for the same hold: %w", err)
	}
	for _, k := range all {
		digest, err := hold.Digest(k.Salt)
		if err != nil {
			return 0, err
		}
		if slices.Equal(digest, k.Digest) {
			return k.ID, nil
		}
	}
	return 0, nil
}

// saltSize is large enough that the digest does not reveal the contents.
const saltSize = 32

// insertHold writes the hold as requested.
func insertHold(ctx context.Context, tx pgx.Tx, hold *hold.Hold, order Order) (id schemas.HoldID, err error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // it does not fail
	digest, err := hold.Digest(salt)
	if err != nil {
		return 0, err
	}
	columns, err := json.Marshal(append([]expiry.Column{}, hold.Columns...))
	if err != nil {
		return 0, fmt.Errorf("write the columns: %w", err)
	}
	err = tx.QueryRow(ctx, `
		insert into lapse.hold (id, table_oid, table_name, columns, keys, digest, matter, reason)
		select coalesce(max(h.id), 0) + 1, $1, $2, lapse.with_meaning($1, $3::text::jsonb), nullif($4::bigint, 0), $5, $6, $7 from lapse.hold h
		returning id`, hold.TableOID, hold.Table, string(columns), len(hold.Keys), digest, order.Matter, order.Reason).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("write the hold: %w", err)
	}
	if _, err := tx.Exec(ctx, `insert into lapse.hold_content (hold, condition, salt) values ($1, $2, $3)`, id, hold.Condition(id), salt); err != nil {
		return 0, fmt.Errorf("write what is held: %w", err)
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"lapse", "hold_key"}, []string{"hold", "key"}, pgx.CopyFromSlice(len(hold.Keys), func(i int) ([]any, error) {
		return []any{int32(id), hold.Keys[i]}, nil
	}))
	if err != nil {
		return 0, fmt.Errorf("write the keys: %w", err)
	}
	if err := writeHoldState(ctx, tx, id, "requested", time.Duration(0), order.Reason); err != nil {
		return 0, err
	}
	if err := followHolds(ctx, tx); err != nil {
		return 0, err
	}
	return id, setHoldVersion(ctx, tx)
}

// followHolds records which tables holds cover now. Whatever was once below a held table stays held.
func followHolds(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `select lapse.follow_holds()`); err != nil {
		return fmt.Errorf("record what holds are on: %w", err)
	}
	return nil
}

// writeHoldState adds a state. The caller has locked the holds, so that the states have one order.
func writeHoldState(ctx context.Context, tx pgx.Tx, id schemas.HoldID, state string, until time.Duration, reason string) error {
	_, err := tx.Exec(ctx, `
		insert into lapse.hold_state (id, hold, state, enforced_until, reason)
		select coalesce(max(s.id), 0) + 1, $1, $2::text, case when $2 = 'releasing' then clock_timestamp() + make_interval(secs => $3::float8) end, $4
		  from lapse.hold_state s`, id, state, until.Seconds(), reason)
	if err != nil {
		return fmt.Errorf("write the state of hold %d: %w", id, err)
	}
	return nil
}

func setHoldVersion(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `select lapse.set_hold_version()`); err != nil {
		return fmt.Errorf("write the hold version: %w", err)
	}
	return nil
}

// stoppedPolicies are the policies that delete nothing because they cannot obey a hold, each with what to do.
func stoppedPolicies(ctx context.Context, tx pgx.Tx) (problems []string, err error) {
	policies, err := record.LoadInForce(ctx, tx)
	if err != nil {
		return nil, err
	}
	for i := range policies {
		p := &policies[i]
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select lapse.held($1, $2, $3)`, p.ID, p.Version, p.TableOID)
			return err
		})
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == schemas.SQLStateHold {
			problems = append(problems, fmt.Sprintf("policy %s deletes nothing until this is fixed: %s", p.Name, refused.Message))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask how policy %s obeys the holds: %w", p.Name, err)
		}
	}
	return problems, nil
}

// Finish completes what a crash left unfinished. For each requested hold it waits until no batch that did not see it can commit, and makes
// it effective. It deletes the contents of holds whose time is over. If there is nothing to finish, it waits for nothing.
func Finish(ctx context.Context, s *site.Session) error {
	var requested, over []schemas.HoldID
	look := func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			select coalesce(array_agg(h.id order by h.id) filter (where s.state = 'requested'), '{}'),
			       coalesce(array_agg(h.id order by h.id) filter (where s.state = 'releasing' and s.enforced_until <= clock_timestamp()), '{}')
			  from lapse.hold h
			 cross join lateral (select s.state, s.enforced_until from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) s`).Scan(&requested, &over)
	}
	if err := pgx.BeginFunc(ctx, s.Conn, look); err != nil {
		return fmt.Errorf("check the holds: %w", err)
	}
	if len(requested) > 0 {
		s.Log.Info("waiting for the batches that began before the hold", "holds", requested)
		err := s.Gated(ctx, "make a hold effective", func(tx pgx.Tx) error {
			if err := lockHolds(ctx, tx, s.Roles); err != nil {
				return err
			}
			if err := look(tx); err != nil {
				return fmt.Errorf("check the holds: %w", err)
			}
			for _, id := range requested {
				if err := writeHoldState(ctx, tx, id, "effective", 0, ""); err != nil {
					return err
				}
			}
			return setHoldVersion(ctx, tx)
		})
		if err != nil {
			return err
		}
	}
	if len(over) == 0 {
		return nil
	}
	return s.Locked(ctx, "end a hold", func(tx pgx.Tx) error {
		if err := lockHolds(ctx, tx, s.Roles); err != nil {
			return err
		}
		if err := look(tx); err != nil {
			return fmt.Errorf("check the holds: %w", err)
		}
		for _, id := range over {
			if err := endHold(ctx, tx, id, "its cooling-off is over"); err != nil {
				return err
			}
		}
		return nil
	})
}

// endHold ends a hold, and deletes its contents.
func endHold(ctx context.Context, tx pgx.Tx, id schemas.HoldID, reason string) error {
	if err := writeHoldState(ctx, tx, id, "released", 0, reason); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `delete from lapse.hold_content where hold = $1`, id); err != nil {
		return fmt.Errorf("forget what hold %d held: %w", id, err)
	}
	return nil
}

// CoolingOff is how long a hold is enforced after its release by default.
const CoolingOff = 30 * 24 * time.Hour

// Release ends a hold after a time, or at once for 0. Durable when it returns.
func Release(ctx context.Context, s *site.Session, id schemas.HoldID, after time.Duration, reason string) error {
	if err := Finish(ctx, s); err != nil {
		return err
	}
	return s.Locked(ctx, fmt.Sprintf("release hold %d", id), func(tx pgx.Tx) error {
		if err := lockHolds(ctx, tx, s.Roles); err != nil {
			return err
		}
		var state string
		err := tx.QueryRow(ctx, `select s.state from lapse.hold_state s where s.hold = $1 order by s.id desc limit 1`, id).Scan(&state)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return &Error{fmt.Sprintf("there is no hold %d", id)}
		case err != nil:
			return fmt.Errorf("check hold %d: %w", id, err)
		case state == "released":
			return &Error{fmt.Sprintf("hold %d is released already", id)}
		case after == 0:
			return endHold(ctx, tx, id, reason)
		case state == "releasing":
			return &Error{fmt.Sprintf("hold %d is being released already: lapse hold show %d says when it ends", id, id)}
		}
		if err := followHolds(ctx, tx); err != nil { // if the table is gone, a release confirms that nothing replaced it
			return err
		}
		return writeHoldState(ctx, tx, id, "releasing", after, reason)
	})
}
