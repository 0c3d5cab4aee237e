package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/backoff"
	"lapse/internal/setup/access"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// Session is a connection of a login that may become the catalog's owner, and does so if it must. Not safe for concurrent use.
type Session struct {
	Conn  *pgx.Conn
	Roles schemas.Roles
	Log   *slog.Logger
}

const (
	// lockPatience is how long a transaction is retried because another session holds a lock.
	lockPatience = 2 * time.Minute
	// LockTimeout is how long one try may make the application wait. It is far below deadlock_timeout, so that the application is never the
	// deadlock's victim.
	LockTimeout = "250ms"
	// gateTimeout is how long one try waits for the gates. Meanwhile only batches wait, and the try waits for the end of one batch.
	gateTimeout = "5s"
)

// Locked runs work in a transaction that is rolled back if it does not get a lock within LockTimeout, so that others proceed, and retried
// after a pause. what names the operation in errors and in the log.
func (s *Session) Locked(ctx context.Context, what string, work func(tx pgx.Tx) error) error {
	return s.again(ctx, what, func() error {
		return pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
			if err := SetLockTimeout(ctx, tx, LockTimeout); err != nil {
				return err
			}
			return work(tx)
		})
	})
}

// runScript runs a script that is a transaction of its own, with a short lock_timeout, as Locked runs its work.
func (s *Session) runScript(ctx context.Context, what, sql string) error {
	return s.again(ctx, what, func() error {
		_, err := s.Conn.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil && !s.Conn.IsClosed() {
			_, rolledBack := s.Conn.Exec(context.WithoutCancel(ctx), "rollback", pgx.QueryExecModeSimpleProtocol)
			err = errors.Join(err, rolledBack)
		}
		return err
	})
}

// again retries an operation until it gets its lock.
func (s *Session) again(ctx context.Context, what string, do func() error) error {
	pause := backoff.Backoff{Min: 500 * time.Millisecond, Max: 10 * time.Second}
	for deadline := time.Now().Add(lockPatience); ; {
		err := do()
		if state := schemas.StateOf(err); state != schemas.SQLStateLockNotAvailable && state != schemas.SQLStateDeadlockDetected {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: another session holds a lock for longer than %v (see pg_stat_activity for transactions that stay open), then run this again: %w",
				what, lockPatience, err)
		}
		s.Log.Info("a table is in use; trying again", "step", what)
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// Gated is Locked with the lock of all gates first: no batch runs, and none begins, until the transaction ends. work must not take long.
func (s *Session) Gated(ctx context.Context, what string, work func(tx pgx.Tx) error) error {
	return s.Locked(ctx, what, func(tx pgx.Tx) error {
		if err := SetLockTimeout(ctx, tx, gateTimeout); err != nil {
			return err
		}
		if err := change.LockGates(ctx, tx, s.Roles); err != nil {
			return err
		}
		if err := SetLockTimeout(ctx, tx, LockTimeout); err != nil {
			return err
		}
		return work(tx)
	})
}

// AcceptTrip closes the breaker of a policy, and allows its next run to delete so many rows. Durable when it returns.
func (s *Session) AcceptTrip(ctx context.Context, p *record.InForce, rows int64) error {
	return s.Locked(ctx, "close the breaker of policy "+string(p.Name), func(tx pgx.Tx) error {
		if err := access.Become(ctx, tx, s.Roles.Owner); err != nil {
			return err
		}
		return run.AcceptTrip(ctx, tx, p, rows)
	})
}

// Restate changes the state of a policy in force. It takes no lock on a user's table; when it returns, no batch runs under the former
// state. Repeated it changes nothing.
//
//	crash before the commit    nothing has changed
//	crash after it             a policy that is to be armed lacks the position that the auditor must pass; the executor
//	                           writes it when it next looks
func (s *Session) Restate(ctx context.Context, c *change.Change, reason string) error {
	if !c.Writes() {
		return nil
	}
	err := s.Gated(ctx, fmt.Sprintf("change policy %s to %s", c.Policy, c.ToState), func(tx pgx.Tx) error {
		_, _, err := change.Write(ctx, tx, c, s.Roles, reason)
		return err
	})
	if err != nil || c.ToState != schemas.Arming {
		return err
	}
	return s.AdvanceArming(ctx, c.ID)
}

// RestateAll writes the state of every policy once more, in a transaction that holds the gates: together with prepare, which comes first,
// all or nothing. Armed policies then wait for the auditor; it returns how many. An empty reason restates none.
//
//	crash before the commit    nothing has changed
//	crash after it             as in Restate
func (s *Session) RestateAll(ctx context.Context, what string, prepare func(tx pgx.Tx) (reason string, err error)) (int, error) {
	arming, err := s.RestateOnly(ctx, what, prepare)
	if err != nil {
		return 0, err
	}
	return len(arming), s.AdvanceArming(ctx, arming...)
}

// RestateOnly is RestateAll without the positions: it returns the policies for which AdvanceArming must still be called.
func (s *Session) RestateOnly(
	ctx context.Context, what string, prepare func(tx pgx.Tx) (reason string, err error),
) (arming []schemas.PolicyID, err error) {
	err = s.Gated(ctx, what, func(tx pgx.Tx) error {
		reason, err := prepare(tx)
		if err != nil || reason == "" {
			return err
		}
		arming, err = change.RestateAll(ctx, tx, reason)
		return err
	})
	return arming, err
}

// AdvanceArming records the position that the auditor must pass before a policy is armed, so that one `lapse audit --once` suffices.
func (s *Session) AdvanceArming(ctx context.Context, ids ...schemas.PolicyID) error {
	for _, id := range ids {
		if _, err := s.Conn.Exec(ctx, `select lapse.advance_arming($1)`, int32(id)); err != nil {
			return fmt.Errorf("write down which position the auditor must pass: %w", err)
		}
	}
	return nil
}

// SetLockTimeout sets lock_timeout for the rest of a transaction.
func SetLockTimeout(ctx context.Context, tx pgx.Tx, timeout string) error {
	if _, err := tx.Exec(ctx, "set local lock_timeout = "+schemas.Literal(timeout)); err != nil {
		return fmt.Errorf("set lock_timeout: %w", err)
	}
	return nil
}

// RunAsOwner runs a script that makes things in the name of a table's owner, and says which right the login lacks if it may not.
func (s *Session) RunAsOwner(ctx context.Context, what, sql, schema, owner string) error {
	err := s.runScript(ctx, what, sql)
	if schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
		return err
	}
	return fmt.Errorf("%w: everything is made in the name of %s, the table's owner: the login must be a member of it, and it must be able to make things there: grant create on schema %s to %s",
		err, owner, schemas.Identifier(schema), schemas.Identifier(owner))
}
