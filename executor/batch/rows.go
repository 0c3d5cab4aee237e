package batch

import (
	"context"
	"fmt"
	"time"
)

// Allowance is how many rows a batch may delete.
type Allowance struct {
	Rows  int
	Pause time.Duration // if Rows is 0: how soon to ask again
	Over  bool          // the run may delete no more
}

// TakeRows asks the policy's limits for rows for a batch on a leased shard. A negative number gives rows back.
func (s *Session) TakeRows(ctx context.Context, l *Lease, wanted int) (Allowance, error) {
	var a Allowance
	var pause *time.Duration
	err := s.Control.QueryRow(ctx, `select granted, pause, over from lapse.take_rows($1, $2, $3, $4)`, l.Shard, l.Term, s.holder, wanted).
		Scan(&a.Rows, &pause, &a.Over)
	if err != nil {
		return a, fmt.Errorf("take rows from the policy's limits: %w", err)
	}
	if pause != nil {
		a.Pause = *pause
	}
	return a, nil
}
