package expiry

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Querier reads: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB is a Querier that can open a transaction of its own: a connection, a pool, or a transaction, which opens a savepoint.
type DB interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// errUndo rolls back a transaction that only read.
var errUndo = errors.New("undo")

// Attempt runs work in a transaction or savepoint that is rolled back afterwards, so that an error in it does not abort the caller's
// transaction.
func Attempt(ctx context.Context, db DB, work func(tx pgx.Tx) error) error {
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

// IsDataException reports whether err is PostgreSQL's class 22: the value is at fault, not the statement.
func IsDataException(err error) bool { return strings.HasPrefix(schemas.StateOf(err), "22") }
