package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/expiry"
)

// Querier reads: a connection, a pool or a transaction.
type Querier = expiry.Querier

// DB is a Querier that can open a transaction of its own: a connection, a pool, or a transaction, which opens a
// savepoint.
type DB = expiry.DB

// pinSQL pins the settings of a transaction.
const pinSQL = `
	set local search_path = pg_catalog, pg_temp;
	set local timezone = 'UTC';
	set local datestyle = 'ISO, YMD';
	set local intervalstyle = 'postgres';
	set local quote_all_identifiers = off;
	set local extra_float_digits = 1;
	set local standard_conforming_strings = on;
	set local plan_cache_mode = force_generic_plan;
	set local enable_seqscan = off;
	set local enable_hashjoin = off;
	set local enable_mergejoin = off`

// Pinned runs work in a transaction or savepoint that is rolled back afterwards, with pinned settings: dates in UTC, names quoted only as needed. Its
// catalog queries are planned once, and use indexes from one relation to the next, so that their cost does not grow with the database.
func Pinned(ctx context.Context, db DB, work func(tx pgx.Tx) error) error {
	return expiry.Attempt(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pinSQL); err != nil {
			return fmt.Errorf("pin the session's settings: %w", err)
		}
		return work(tx)
	})
}

// Collect reads all rows of a query into structs, by position.
func Collect[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// closeTimeout bounds what closing a connection takes.
const closeTimeout = 2 * time.Second

// Close closes a connection; what was open is rolled back.
func Close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
