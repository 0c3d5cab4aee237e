package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Querier reads: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB is a Querier that can open a transaction of its own: a connection, a pool, or a transaction, which opens a
// savepoint.
type DB interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// errUndo ends a transaction that only looked.
var errUndo = errors.New("undo")

// attempt runs work in a transaction or savepoint that is undone afterwards, so that an error of PostgreSQL's leaves the
// caller's transaction as it was.
func attempt(ctx context.Context, db DB, work func(q Querier) error) error {
	return look(ctx, db, func(tx pgx.Tx) error { return work(tx) })
}

// look is attempt for work that has further attempts inside.
func look(ctx context.Context, db DB, work func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := work(tx); err != nil {
			return err
		}
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// pinned is look in a session whose settings do not matter: dates in UTC, names quoted only where SQL wants it.
func pinned(ctx context.Context, db DB, work func(tx pgx.Tx) error) error {
	return look(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			select set_config(name, value, true)
			  from (values ('search_path', 'pg_catalog, pg_temp'), ('timezone', 'UTC'), ('datestyle', 'ISO, YMD'),
			               ('intervalstyle', 'postgres'), ('quote_all_identifiers', 'off'), ('extra_float_digits', '1'),
			               ('standard_conforming_strings', 'on')) s(name, value)`)
		if err != nil {
			return fmt.Errorf("pin the session's settings: %w", err)
		}
		return work(tx)
	})
}

// collect reads all rows of a query into structs, by position.
func collect[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}
