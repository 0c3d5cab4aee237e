package expression

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// nameless is a transaction that runs no prepared statement by its name. Were code of the table's owner to run, it could prepare
// another statement under that name, which this login would then run with rights of its own.
type nameless struct{ pgx.Tx }

// Begin opens a savepoint.
func (n nameless) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := n.Tx.Begin(ctx)
	return nameless{inner}, err
}

// Exec is Exec, without a name.
func (n nameless) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return n.Tx.Exec(ctx, sql, withoutName(args)...)
}

// Query is Query, without a name.
func (n nameless) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return n.Tx.Query(ctx, sql, withoutName(args)...)
}

// QueryRow is QueryRow, without a name.
func (n nameless) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return n.Tx.QueryRow(ctx, sql, withoutName(args)...)
}

func withoutName(args []any) []any { return slices.Concat([]any{pgx.QueryExecModeDescribeExec}, args) }

// pin sets back what code of the owner's may have set: a plain SET outlives the function that it is made in, whatever that function
// sets itself, and decides what our next statement means.
func pin(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		set local search_path = pg_catalog, pg_temp;
		set local standard_conforming_strings = on;
		set local timezone = 'UTC';
		set local datestyle = 'ISO, YMD';
		set local intervalstyle = 'postgres';
		set local quote_all_identifiers = off;
		set local extra_float_digits = 1;
		set local row_security = off`)
	if err != nil {
		return fmt.Errorf("pin the session's settings: %w", err)
	}
	return nil
}
