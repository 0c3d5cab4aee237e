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

// lockPatience is how long a command goes on trying to lock a table; lockTimeout is how long one try may make the
// application wait behind it.
const (
	lockPatience = 2 * time.Minute
	lockTimeout  = "2s"
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
		if state := stateOf(err); state != stateLockTimeout && state != stateDeadlock {
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

// join publishes tables, each after the check that it can be published without harm.
func join(ctx context.Context, tx pgx.Tx, tables []uint32, roles schemas.Roles) error {
	return publishing(ctx, tx, tables, roles, replication.Join)
}

// leave takes tables out of their publications.
func leave(ctx context.Context, tx pgx.Tx, tables []uint32, roles schemas.Roles) error {
	return publishing(ctx, tx, tables, roles, replication.Leave)
}

// publishing changes what is published. PostgreSQL wants the owner of both the publication and the table for it, and no
// role of Lapse is both: it is done in the login's own name.
func publishing(
	ctx context.Context, tx pgx.Tx, tables []uint32, roles schemas.Roles, change func(context.Context, pgx.Tx, uint32) error,
) error {
	if len(tables) == 0 {
		return nil
	}
	if err := as(ctx, tx, "none"); err != nil {
		return err
	}
	for _, oid := range tables {
		err := change(ctx, tx, oid)
		if stateOf(err) == stateNotAllowed {
			return fmt.Errorf("%w: let this login be a member of %s and of the table's owner (`lapse apply --grants -f FILE` prints how), or run this with a superuser's", err, roles.Owner)
		}
		if err != nil {
			return err
		}
	}
	return as(ctx, tx, quoted(roles.Owner))
}

// as makes the rest of a transaction the work of role; none is the login's own.
func as(ctx context.Context, tx pgx.Tx, role string) error {
	if _, err := tx.Exec(ctx, "set local role "+role); err != nil {
		return fmt.Errorf("become %s: %w", role, err)
	}
	return nil
}

// reached lists what must be published for a table that is in force: itself, and the roots of what foreign keys take
// along from it or from one of its partitions.
func reached(ctx context.Context, conn *pgx.Conn, table uint32) ([]uint32, error) {
	rows, err := conn.Query(ctx, `
		with target(oid) as (
		  select $1::oid
		  union
		  select t.relid from pg_partition_tree($1::oid::regclass) t
		), touched(oid) as (
		  select $1::oid
		  union
		  select r.relation from target cross join lateral lapse.reach(array[target.oid]) r where r.deletes
		)
		select distinct coalesce(pg_partition_root(touched.oid::regclass)::oid, touched.oid) from touched order by 1`, table)
	if err != nil {
		return nil, fmt.Errorf("list what table with oid %d reaches: %w", table, err)
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("list what table with oid %d reaches: %w", table, err)
	}
	return oids, nil
}

// reachedBy is reached for the table of a policy that is in force; a table that has been dropped reaches nothing.
func reachedBy(ctx context.Context, conn *pgx.Conn, policy planner.PolicyName) ([]uint32, error) {
	var table uint32
	err := conn.QueryRow(ctx, `
		select c.oid from lapse.gate g join pg_class c on c.oid = g.table_oid where g.name = $1 and g.state <> 'dropped'`,
		string(policy)).Scan(&table)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the table of policy %s: %w", policy, err)
	}
	return reached(ctx, conn, table)
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

func isMember(members []replication.Member, oid uint32) bool {
	return slices.ContainsFunc(members, func(m replication.Member) bool {
		return m.OID == oid && m.Publication != replication.Ledger
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
