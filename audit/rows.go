package audit

import (
	"context"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/schemas"
)

// largestProof bounds the size of records of the proof store.
const largestProof = 64 << 10

// beginRows begins a transaction's commitments.
func (r *relay) beginRows() {
	if r.rows != nil {
		r.rows.Begin()
	}
}

// commitRow commits to an event, whether or not its partition has it already: a root covers all events of the transaction.
func (r *relay) commitRow(ctx context.Context, e *evidence.Event, routed *evidence.Routed) error {
	if r.rows == nil {
		return nil
	}
	full, err := r.rows.Add(e, routed.Key)
	if err != nil {
		return err
	}
	return r.storeProof(ctx, full)
}

// endRows puts the root into the transaction's record. The chunks of the proof store are appended before it, and acknowledged before the record is
// appended, as events are.
//
//	crash before that    the slot sends the transaction again, and the store gets the same chunks a second time: readers take one
func (r *relay) endRows(ctx context.Context, outcome *evidence.Conclusion) error {
	if r.rows == nil {
		return nil
	}
	if month := r.rows.Destroyed(); month != "" && month != r.noRoot {
		r.noRoot = month
		r.log.Warn("a transaction names a month whose key was destroyed; it is published, and its record has no root over "+
			"its rows: lapse verify counts such transactions", "month", string(month), "commit_lsn", r.tx.CommitLSN.String())
	}
	root, last := r.rows.Commit()
	if root == nil {
		return nil
	}
	outcome.Records[0].(*evidence.TransactionContent).Rows = root // a transaction with events has such a record, and it is the first
	return r.storeProof(ctx, last)
}

// storeProof appends a chunk to the proof store.
func (r *relay) storeProof(ctx context.Context, chunk *rows.Chunk) error {
	if chunk == nil {
		return nil
	}
	mark, err := r.append(ctx, &schemas.Record{
		Topic: r.proofs, Value: chunk.Value, Time: r.tx.CommitTime, Headers: rows.Headers(&r.route.Source, chunk),
	})
	if err != nil {
		return err
	}
	r.lastEvent = mark
	return nil
}
