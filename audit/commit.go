package audit

import (
	"context"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/replication"
)

// commit ends a transaction. Its records wait in the queue until its events are acknowledged.
//
//	crash before the events are acknowledged    the slot sends it again; the partitions' tails say where to go on
//	crash before a marker is in every partition the same
//	crash before its first record is            the slot sends it again; every event is at or below its partition's tail,
//	 acknowledged                               and the records are made again from the same changes
//	crash between two of its records            the same, and those that the log has are dropped by their positions. The
//	                                            last one that is there says that another follows, so that the next start
//	                                            does not take the transaction for done
//	crash before its end is confirmed           the slot sends it again; its commit lies below the log's end, and it is
//	                                            dropped before it is routed
func (r *relay) commit(ctx context.Context, tx *replication.Tx) error {
	if r.passed {
		r.tx = nil
		if r.reach.Before(evidence.EndOf(tx)) {
			return history.Refuse(errDisorder, "transaction %d ends at %s, beyond the log's end at %s, and committed before it", "",
				tx.XID, tx.EndLSN, r.reach.LSN)
		}
		return nil
	}
	outcome := r.assembler.Commit(tx, r.ancestry)
	if err := r.publishEvents(ctx); err != nil {
		return err
	}
	if err := r.endRows(ctx, outcome); err != nil {
		return err
	}
	r.tx = nil
	if len(outcome.Records) == 0 {
		r.coverage.reached(evidence.EndOf(tx))
		r.metrics.serverLag.readUpTo(tx.EndLSN)
		r.coverage.wanted = r.coverage.wanted || outcome.Account.Awaited
		r.waiting()
		return r.flush()
	}
	if err := r.stopDeletions(ctx, tx, outcome.Account); err != nil {
		return err
	}
	r.tell(tx, outcome.Account, outcome.Verdict)
	if h := outcome.Account.Heartbeat; h != nil {
		r.heartbeats.received(h)
	}
	entries := r.writer.WriteAll(outcome.Records, evidence.EndOf(tx))
	lost := false
	for _, m := range outcome.Markers {
		if err := r.publishMarker(ctx, m); err != nil {
			return err
		}
		if m.Reason == evidence.ReasonTopic {
			lost, r.ends.told = true, entries[len(entries)-1].Position
		}
	}
	r.stale = r.stale || outcome.Partitions && r.copied == nil && r.stream.Identity().ServerVersion < partitionsSeen
	if err := r.record(ctx, entries); err != nil || !lost {
		return err
	}
	// No event may be above the gap before the log has it: the next start could not write the same one again.
	return r.logAll(ctx)
}

// record puts a transaction's records in line when there is room for all of them: what is read meanwhile has no record
// between two of them.
func (r *relay) record(ctx context.Context, entries []*evidence.Entry) error {
	for !r.queue.room(len(entries)) {
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	for _, entry := range entries {
		r.enqueue(entry)
	}
	return r.flush()
}

// tell logs the outcome of a transaction that is not as it should be. Positions and names only.
func (r *relay) tell(tx *replication.Tx, account *evidence.Account, verdict evidence.Verdict) {
	r.metrics.concluded(account, verdict)
	if verdict != evidence.Mismatch && !account.Unverified() || account.OwnUnverified != nil { // stopDeletions has told them
		return
	}
	attributes := []any{"xid", tx.XID, "commit_lsn", tx.CommitLSN.String(), "verdict", string(verdict)}
	if account.Claim != nil {
		attributes = append(attributes, "policy", account.Claim.Policy, "batch", account.Claim.Batch.String())
	}
	for i := range account.Tallies {
		if t := &account.Tallies[i]; t.Cause == evidence.System && t.Judged != t.Due {
			attributes = append(attributes, "table", t.Table, "not_due", t.NotDue, "due_unknown", t.Judged-t.Due-t.NotDue)
			break // of a batch's rows only those of its target are judged
		}
	}
	r.log.Warn("a transaction is not what the ledger says", attributes...)
}
