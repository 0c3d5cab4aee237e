package replication

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// Grade says what to do about an error of this package.
type Grade int

// The grades. No grade skips anything: a change that cannot be read stops the audit.
const (
	// Stop: the same would happen again, or something has been lost; a person must act.
	Stop Grade = iota
	// Retry: open the stream again after a pause. The slot has kept everything.
	Retry
)

// String names the grade in logs.
func (g Grade) String() string {
	if g == Retry {
		return "retry"
	}
	return "stop"
}

// GradeOf decides by SQLSTATE and SafeToRetry, never by the text. A canceled context is Stop, because the caller wanted it.
func GradeOf(err error) Grade {
	switch {
	case errors.Is(err, context.Canceled):
		return Stop
	case errors.Is(err, ErrSlotActive), errors.Is(err, errServerStopped), errors.Is(err, ErrStopping),
		errors.Is(err, errOverdue), errors.Is(err, ErrWoken), errors.Is(err, errNoAnswer), errors.Is(err, ErrSynchronous):
		return Retry
	case isOurs(err):
		return Stop
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		return Retry // target_session_attrs: none of the servers is a primary, for instance before a promotion
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return gradeOfState(pg.Code)
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) {
		return Retry
	}
	return Stop
}

// isOurs reports whether an error is a refusal of this package, whatever it wraps.
func isOurs(err error) bool {
	var decode *decodeError
	var slot *SlotError
	var identity *IdentityError
	var publication *PublicationError
	return errors.As(err, &decode) || errors.As(err, &slot) || errors.As(err, &identity) ||
		errors.As(err, &publication) || errors.Is(err, errStandby) || errors.Is(err, errNotLogical) ||
		errors.Is(err, errClosed) || errors.Is(err, errFrame)
}

func gradeOfState(state string) Grade {
	switch state {
	case schemas.SQLStateObjectInUse, schemas.SQLStateLockNotAvailable, schemas.SQLStateQueryCanceled:
		return Retry
	case schemas.SQLStateConfigurationLimit, schemas.SQLStateDatabaseDropped:
		return Stop
	}
	switch {
	case len(state) < 2:
		return Stop
	case state[:2] == classConnection, state[:2] == classOperator, state[:2] == classTransactionRollback,
		state[:2] == classResources:
		return Retry
	default:
		return Stop
	}
}
