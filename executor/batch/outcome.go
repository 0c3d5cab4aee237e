package batch

import (
	"context"
	"fmt"

	"lapse/schemas"
)

// IsOver reports whether a transaction has ended. A standby cannot tell.
func (s *Session) IsOver(ctx context.Context, xid schemas.XID) (bool, error) {
	var standby bool
	var status *string
	err := s.Control.QueryRow(ctx, `select pg_is_in_recovery(), pg_xact_status($1)`, xid).Scan(&standby, &status)
	if schemas.StateOf(err) == schemas.SQLStateInvalidParameterValue {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask what became of a transaction: %w", err)
	}
	return !standby && (status == nil || *status != "in progress"), nil
}

// InLedger reports whether a batch, whose transaction has ended, committed. A batch that picked nothing has no row in the ledger, and
// nothing to count.
func (s *Session) InLedger(ctx context.Context, done *Result) (there bool, err error) {
	err = s.Control.QueryRow(ctx, `select exists (select from lapse.batch where batch = $1) or exists (select from lapse.dropped where batch = $1)`, done.Batch).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look for a batch in the ledger: %w", err)
	}
	return there, nil
}
