package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

const (
	// lockPatience is how long a command goes on trying to lock a table.
	lockPatience = 2 * time.Minute
	// lockTimeout is how long one try may make the application wait behind it. It stays far below deadlock_timeout, so
	// that the application is never the deadlock's victim.
	lockTimeout = "250ms"
	// gateTimeout is how long one try waits for the gates. Only batches wait behind it, and what it waits for is one
	// batch's end.
	gateTimeout = "5s"
	// leavePatience is how long a table that nobody needs in a publication is tried for.
	leavePatience = 2 * time.Second
)

// retryLocked runs work in a transaction whose locks are waited for politely: a try that does not get one within
// lockTimeout is given up, so that others come through, and repeated after a pause.
func retryLocked(ctx context.Context, conn *pgx.Conn, log *slog.Logger, what string, work func(tx pgx.Tx) error) error {
	pause, deadline := 500*time.Millisecond, time.Now().Add(lockPatience)
	for {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local lock_timeout = '`+lockTimeout+`'`); err != nil {
				return err
			}
			return work(tx)
		})
		if state := schemas.StateOf(err); state != schemas.SQLStateLockNotAvailable && state != schemas.SQLStateDeadlockDetected {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: somebody holds a lock for longer than %v (see pg_stat_activity for transactions that stay open), then run this again: %w",
				what, lockPatience, err)
		}
		log.Warn("a table is in use; trying again", "step", what, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, 10*time.Second)
	}
}

// retryGated is retryLocked with the gates' lock first: from then on no batch runs until the transaction ends, so nothing
// that takes long may be done in it.
func retryGated(
	ctx context.Context, conn *pgx.Conn, log *slog.Logger, what string, roles schemas.Roles, work func(tx pgx.Tx) error,
) error {
	return retryLocked(ctx, conn, log, what, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '`+gateTimeout+`'`); err != nil {
			return err
		}
		if err := planner.LockGates(ctx, tx, roles); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `set local lock_timeout = '`+lockTimeout+`'`); err != nil {
			return err
		}
		return work(tx)
	})
}

// join publishes those of tables that are not published, each after the check that it can be published without harm. A
// table that is published is not locked.
func join(ctx context.Context, tx pgx.Tx, tables []uint32, roles schemas.Roles) error {
	members, err := replication.Members(ctx, tx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(tables), func(oid uint32) bool { return isMember(members, oid) })
	return publishing(ctx, tx, missing, roles, replication.Join)
}

// leave takes a table out of its publications, if nobody is using it at this moment: it waits for no lock, so that nobody
// waits behind it.
func leave(ctx context.Context, conn *pgx.Conn, table uint32, roles schemas.Roles) error {
	pause, deadline := 50*time.Millisecond, time.Now().Add(leavePatience)
	for {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			return publishing(ctx, tx, []uint32{table}, roles, leaveAtOnce)
		})
		if schemas.StateOf(err) != schemas.SQLStateLockNotAvailable || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func leaveAtOnce(ctx context.Context, tx pgx.Tx, table uint32) error {
	var name string
	err := tx.QueryRow(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		  from pg_catalog.pg_class c
		  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		 where c.oid = $1`, table).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it is gone, and its membership with it
	}
	if err != nil {
		return fmt.Errorf("find the table with oid %d: %w", table, err)
	}
	if _, err := tx.Exec(ctx, "lock table "+name+" in share row exclusive mode nowait"); err != nil {
		return fmt.Errorf("lock table %s: %w", name, err)
	}
	return replication.Leave(ctx, tx, table)
}

// publishing changes what is published. PostgreSQL wants the owner of both the publication and the table for it, and no
// role of Lapse is both: it is done in the login's own name. The catalog's owner takes it down, for these tables only: what
// somebody else has changed stays a fault, and was counted before, where the change puts it right.
func publishing(
	ctx context.Context, tx pgx.Tx, tables []uint32, roles schemas.Roles, change func(context.Context, pgx.Tx, uint32) error,
) error {
	if len(tables) == 0 {
		return nil
	}
	if err := as(ctx, tx, schemas.Identifier(roles.Owner)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select lapse.begin_publications()`); err != nil {
		return fmt.Errorf("look at the publications: %w", err)
	}
	if err := as(ctx, tx, "none"); err != nil {
		return err
	}
	for _, oid := range tables {
		err := change(ctx, tx, oid)
		if schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege {
			return fmt.Errorf("%w: let this login be a member of %s and of the table's owner (`lapse apply --grants -f FILE` prints how), or run this with a superuser's", err, roles.Owner)
		}
		if err != nil {
			return err
		}
	}
	if err := as(ctx, tx, schemas.Identifier(roles.Owner)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select lapse.record_published($1)`, tables); err != nil {
		return fmt.Errorf("take down what is published: %w", err)
	}
	return nil
}

// as makes the rest of a transaction the work of role; none is the login's own.
func as(ctx context.Context, tx pgx.Tx, role string) error {
	if _, err := tx.Exec(ctx, "set local role "+role); err != nil {
		return fmt.Errorf("become %s: %w", role, err)
	}
	return nil
}

// reached lists what must be published for a table that is in force: itself, and the roots of what foreign keys take
// along from it or from one of its partitions. It locks none of them. A table that is gone reaches nothing.
func reached(ctx context.Context, conn *pgx.Conn, table uint32) ([]uint32, error) {
	rows, err := conn.Query(ctx, `
		select c.oid from pg_class c where c.oid = $1
		 union
		select coalesce(pg_partition_root(r.relation)::oid, r.relation)
		  from lapse.reach($1::oid || array(select l.relation from lapse.leaves($1::oid) l)) r
		 where r.deletes
		 order by oid`, table)
	if err != nil {
		return nil, fmt.Errorf("list what table with oid %d reaches: %w", table, err)
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("list what table with oid %d reaches: %w", table, err)
	}
	return oids, nil
}

// unpublished lists what of a table in force is in no publication.
func unpublished(ctx context.Context, conn *pgx.Conn, table uint32) ([]uint32, error) {
	oids, err := reached(ctx, conn, table)
	if err != nil {
		return nil, err
	}
	members, err := replication.Members(ctx, conn)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(oids, func(oid uint32) bool { return isMember(members, oid) }), nil
}

// isMember says whether a table is published as it must be. One that is in another publication of Lapse's, as an earlier
// version had it, has still to be moved.
func isMember(members []replication.Member, oid uint32) bool {
	return slices.ContainsFunc(members, func(m replication.Member) bool {
		return m.OID == oid && m.Publication == replication.Deletes
	})
}

// checkIdentities returns an error that names every table whose own deletes a publication would break.
func checkIdentities(ctx context.Context, q replication.Querier, tables []uint32) error {
	var errs []error
	for _, oid := range tables {
		err := replication.CheckIdentity(ctx, q, oid)
		var identity *replication.IdentityError
		if err != nil && !errors.As(err, &identity) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
