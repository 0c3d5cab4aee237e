package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/backoff"
	"lapse/internal/setup/access"
	"lapse/planner/database"
	"lapse/replication"
	"lapse/schemas"
)

// Updated are the tables in which a policy sets a column or detects moves: their inserts and updates are published too.
type Updated map[uint32]bool

// IsMember reports whether a table is in the right publication. A table in another publication of Lapse's, from an earlier version or another policy,
// must be moved.
func (u Updated) IsMember(members []replication.Member, oid uint32) bool {
	want := replication.Deletes
	if u[oid] {
		want = replication.Changes
	}
	return slices.ContainsFunc(members, func(m replication.Member) bool {
		return m.OID == oid && m.Publication == want
	})
}

// NotPublished are the tables that are not in the right publication.
func (u Updated) NotPublished(members []replication.Member, tables []uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(tables), func(oid uint32) bool { return u.IsMember(members, oid) })
}

// Publish publishes tables, each after the check that publishing does no harm.
func (s *Session) Publish(ctx context.Context, tx pgx.Tx, tables []uint32, u Updated) error {
	return s.changePublished(ctx, tx, tables, func(ctx context.Context, tx pgx.Tx, table uint32) error {
		if u[table] {
			return replication.JoinChanges(ctx, tx, table)
		}
		return replication.Join(ctx, tx, table)
	})
}

const (
	// leavePatience is how long removing an unneeded table from a publication is tried.
	leavePatience = 2 * time.Second
	leavePause    = 50 * time.Millisecond
)

// Unpublish removes a table from its publications if no session uses it: it waits for no lock, so that no session waits for Unpublish.
func (s *Session) Unpublish(ctx context.Context, table uint32) error {
	for deadline := time.Now().Add(leavePatience); ; {
		err := pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
			return s.changePublished(ctx, tx, []uint32{table}, leaveAtOnce)
		})
		if schemas.StateOf(err) != schemas.SQLStateLockNotAvailable || time.Now().After(deadline) {
			return err
		}
		if err := backoff.Sleep(ctx, leavePause); err != nil {
			return err
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
		return nil // it was dropped, and its membership with it
	}
	if err != nil {
		return fmt.Errorf("find the table with oid %d: %w", table, err)
	}
	if _, err := tx.Exec(ctx, "lock table "+name+" in share row exclusive mode nowait"); err != nil {
		return fmt.Errorf("lock table %s: %w", name, err)
	}
	return replication.Leave(ctx, tx, table)
}

// changePublished changes in which publications tables are. PostgreSQL requires the owner of both the publication and the table, and no
// role of Lapse's is both, so the login does it in its own name. The catalog's owner records it, for these tables only: changes by others
// remain a fault, and were counted before this change could repair them.
func (s *Session) changePublished(
	ctx context.Context, tx pgx.Tx, tables []uint32, change func(context.Context, pgx.Tx, uint32) error,
) error {
	if len(tables) == 0 {
		return nil
	}
	if err := access.Become(ctx, tx, s.Roles.Owner); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select lapse.begin_publications()`); err != nil {
		return fmt.Errorf("check the publications: %w", err)
	}
	if err := access.Become(ctx, tx, ""); err != nil {
		return err
	}
	for _, oid := range tables {
		err := change(ctx, tx, oid)
		if schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege {
			return fmt.Errorf("%w: let this login be a member of %s and of the table's owner (`lapse apply --grants -f FILE` prints how), or run this with a superuser's", err, s.Roles.Owner)
		}
		if err != nil {
			return err
		}
	}
	if err := access.Become(ctx, tx, s.Roles.Owner); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select lapse.record_published($1)`, tables); err != nil {
		return fmt.Errorf("record what is published: %w", err)
	}
	return nil
}

// Reached lists what must be published for a table that is in force: the table itself, and the roots of the tables in which foreign keys
// delete with it or with one of its partitions. A table whose rows are only updated reaches nothing else. It locks none of them. A missing
// table reaches nothing.
func Reached(ctx context.Context, q database.Querier, table uint32, updates bool) ([]uint32, error) {
	rows, _ := q.Query(ctx, `
		select c.oid from pg_class c where c.oid = $1
		 union
		select coalesce(pg_partition_root(r.relation)::oid, r.relation)
		  from lapse.reach($1::oid || array(select l.relation from lapse.leaves($1::oid) l)) r
		 where r.deletes and not $2
		 order by oid`, table, updates) // CollectRows has its error
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("list what table with oid %d reaches: %w", table, err)
	}
	return oids, nil
}
