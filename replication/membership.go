package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Join publishes a policy's table in Deletes, and removes it from Changes if it is there. It first locks the table, and all its partitions, SHARE
// ROW EXCLUSIVE: without that lock, of a transaction that is just deleting, one delete would be missed and the next seen. The lock waits for
// writers and makes others wait, so set lock_timeout in the transaction (SQLSTATE 55P03 is Retry). Join then refuses a table whose own
// deletes the publication would break (CheckIdentity).
//
// The table is published from the commit of tx on. If it is published already, it is only locked and checked.
func Join(ctx context.Context, tx pgx.Tx, relation uint32) error {
	t, err := lockTable(ctx, tx, relation)
	if err != nil {
		return err
	}
	if err := CheckIdentity(ctx, tx, relation); err != nil {
		return err
	}
	if err := addTable(ctx, tx, Deletes, t); err != nil {
		return err
	}
	return removeTable(ctx, tx, Changes, t)
}

// JoinChanges is Join for a table whose updates are needed too: it is published in Changes, and removed from Deletes.
func JoinChanges(ctx context.Context, tx pgx.Tx, relation uint32) error {
	t, err := lockTable(ctx, tx, relation)
	if err != nil {
		return err
	}
	if err := CheckIdentity(ctx, tx, relation); err != nil {
		return err
	}
	if err := addTable(ctx, tx, Changes, t); err != nil {
		return err
	}
	return removeTable(ctx, tx, Deletes, t)
}

// JoinLedger publishes a table of evidence in Ledger. Only inserts are published, so it needs no replica identity.
func JoinLedger(ctx context.Context, tx pgx.Tx, relation uint32) error {
	t, err := lockTable(ctx, tx, relation)
	if err != nil {
		return err
	}
	return addTable(ctx, tx, Ledger, t)
}

// JoinCatalog publishes a table of the catalog in Catalog. Its replica identity is the whole row (REPLICA IDENTITY FULL), so that a row
// that is changed or deleted is published as it was.
func JoinCatalog(ctx context.Context, tx pgx.Tx, relation uint32) error {
	t, err := lockTable(ctx, tx, relation)
	if err != nil {
		return err
	}
	return addTable(ctx, tx, Catalog, t)
}

// Leave removes a table from Deletes and Changes, under the same lock. What was deleted before the commit of tx is still delivered. A table that is
// in neither is not an error.
func Leave(ctx context.Context, tx pgx.Tx, relation uint32) error {
	t, err := lockTable(ctx, tx, relation)
	if err != nil {
		return err
	}
	if err := removeTable(ctx, tx, Deletes, t); err != nil {
		return err
	}
	return removeTable(ctx, tx, Changes, t)
}

// table is a relation's quoted name and kind.
type table struct {
	oid  uint32
	name string
	kind string
}

const kindPartitioned = "p"

// lockTable locks a table, and checks that the name that it locked still belongs to the relation.
func lockTable(ctx context.Context, tx pgx.Tx, relation uint32) (table, error) {
	before, err := readTable(ctx, tx, relation)
	if err != nil {
		return before, err
	}
	if _, err := tx.Exec(ctx, "lock table "+before.name+" in share row exclusive mode"); err != nil {
		return before, fmt.Errorf("lock table %s to publish it: %w", before.name, err)
	}
	after, err := readTable(ctx, tx, relation)
	if err == nil && after != before {
		err = fmt.Errorf("lock table %s: it was renamed meanwhile; try again", before.name)
	}
	return after, err
}

func readTable(ctx context.Context, q Querier, relation uint32) (table, error) {
	const query = `
select format('%I.%I', n.nspname, c.relname), c.relkind::text
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.oid = $1`
	t := table{oid: relation}
	switch err := q.QueryRow(ctx, query, relation).Scan(&t.name, &t.kind); {
	case errors.Is(err, pgx.ErrNoRows):
		return t, &IdentityError{Table: fmt.Sprintf("oid %d", relation), Reason: noTable, Fix: "name a table that exists"}
	case err != nil:
		return t, fmt.Errorf("read table with oid %d: %w", relation, err)
	default:
		return t, nil
	}
}

func addTable(ctx context.Context, tx pgx.Tx, to Publication, t table) error {
	members, err := membersOf(ctx, tx, t.oid)
	if err != nil || slices.Contains(members, to) {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("alter publication %s add table only %s", to, t.name)); err != nil {
		return fmt.Errorf("add table %s to publication %q: %w", t.name, to, err)
	}
	return nil
}

func removeTable(ctx context.Context, tx pgx.Tx, from Publication, t table) error {
	members, err := membersOf(ctx, tx, t.oid)
	if err != nil || !slices.Contains(members, from) {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("alter publication %s drop table only %s", from, t.name)); err != nil {
		return fmt.Errorf("drop table %s from publication %q: %w", t.name, from, err)
	}
	return nil
}

func membersOf(ctx context.Context, q Querier, relation uint32) ([]Publication, error) {
	const query = `
select p.pubname::text
  from pg_catalog.pg_publication_rel r
  join pg_catalog.pg_publication p on p.oid = r.prpubid
 where r.prrelid = $1`
	rows, err := q.Query(ctx, query, relation)
	if err != nil {
		return nil, fmt.Errorf("read publications of table with oid %d: %w", relation, err)
	}
	in, err := pgx.CollectRows(rows, pgx.RowTo[Publication])
	if err != nil {
		return nil, fmt.Errorf("read publications of table with oid %d: %w", relation, err)
	}
	return in, nil
}

// Member is a table in one of Lapse's publications.
type Member struct {
	Publication Publication
	OID         uint32
	Schema      string
	Name        string
	Partitioned bool
}

// Members lists the tables of all Lapse's publications, in order. A partitioned table includes its partitions.
func Members(ctx context.Context, q Querier) ([]Member, error) {
	const query = `
select p.pubname::text, c.oid, n.nspname::text, c.relname::text, c.relkind = 'p'
  from pg_catalog.pg_publication_rel r
  join pg_catalog.pg_publication p on p.oid = r.prpubid
  join pg_catalog.pg_class c on c.oid = r.prrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where p.pubname = any($1)
 order by p.pubname, n.nspname, c.relname`
	rows, err := q.Query(ctx, query, Publications())
	if err != nil {
		return nil, fmt.Errorf("read the tables of the publications: %w", err)
	}
	members, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Member])
	if err != nil {
		return nil, fmt.Errorf("read the tables of the publications: %w", err)
	}
	return members, nil
}
