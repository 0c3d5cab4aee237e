package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// settle finds out what became of a transaction whose COMMIT was not answered. Only the counters depend on it: rows,
// ledger and cursor went together or stayed together.
//
//	pg_xact_status says        it is
//	in progress                waited for, however long: the former backend may still be at work, and commit
//	committed, aborted, null   over: the ledger says whether it happened
//	an xid of the future       over: a crash of the server took it, and nothing of it was on disk
//
// After a crash of the server the xid may be another transaction's by now, which committed. So "committed" alone proves
// nothing; the ledger row with this batch's id does.
func (e *Executor) settle(ctx context.Context, done *result) (committed bool, err error) {
	pause := pauses{first: 10 * time.Millisecond, last: time.Second}
	for {
		s, err := e.connected(ctx, forever)
		if err != nil {
			return false, err
		}
		over, err := s.isOver(ctx, done.xid)
		if err == nil && over {
			committed, err = s.inLedger(ctx, done)
		}
		switch {
		case err == nil && over:
			return committed, nil
		case err != nil && grade(err, circumstances{lost: s.lost()}) != Retry:
			return false, err
		}
		if err := wait(ctx, pause.grow()); err != nil {
			return false, err
		}
	}
}

// isOver says whether a transaction has ended. A standby does not know.
func (s *session) isOver(ctx context.Context, xid schemas.XID) (bool, error) {
	var standby bool
	var status *string
	err := s.control.QueryRow(ctx, `select pg_is_in_recovery(), pg_xact_status($1)`, xid).Scan(&standby, &status)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == schemas.SQLStateInvalidParameterValue {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask what became of a transaction: %w", err)
	}
	return !standby && (status == nil || *status != "in progress"), nil
}

// inLedger says whether the batch committed. The statement's snapshot is younger than the end of its transaction. A
// batch that picked nothing has no row, and nothing to count.
func (s *session) inLedger(ctx context.Context, done *result) (there bool, err error) {
	err = s.control.QueryRow(ctx, `select exists (select from lapse.batch where batch = $1)`, done.batch).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look for a batch in the ledger: %w", err)
	}
	return there, nil
}
