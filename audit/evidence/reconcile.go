package evidence

// Verdict is the result of comparing the ledger's claim with the WAL for one transaction.
type Verdict string

// The verdicts.
const (
	Match     Verdict = "match"     // each relation lost as many rows as claimed, and nothing else happened
	Mismatch  Verdict = "mismatch"  // claimed but not seen, or seen but not claimed
	Unclaimed Verdict = "unclaimed" // nothing was claimed, or nothing that verifies
)

// reconcile compares what a transaction claimed with what was seen of it.
//
// A claim without a readable result of its own is a mismatch, even if nothing was deleted: the deletion function writes both or, by
// aborting, neither. So is a claim with anything unverified after it, even if the counts agree, and one whose two counts of the target
// differ, as trusted triggers can cause. If the auditor judges due times, so is a claim with a row that was not due or cannot be judged.
func reconcile(a *Account) Verdict {
	if a.Claim == nil {
		return Unclaimed
	}
	if a.Drop != nil {
		if a.Drops != 1 || a.Batches > 0 || a.Results > 0 || a.Unverified() {
			return Mismatch
		}
		return Match // nothing to count: the server publishes no rows of a dropped partition
	}
	r := a.Result
	if r == nil || a.Drops > 0 || r.Batch != a.Claim.Batch || a.Batches != 1 || a.Results != 1 || a.Unverified() || !a.dueAll() {
		return Mismatch
	}
	if r.Deleted > r.Picked || r.rows(a.Claim.Target) != r.Deleted {
		return Mismatch
	}
	for _, claimed := range r.ByRelation {
		if uint64(claimed.Rows) != a.system(claimed.OID) {
			return Mismatch
		}
	}
	for i := range a.Tallies {
		if t := &a.Tallies[i]; a.system(t.OID) != uint64(r.rows(t.OID)) {
			return Mismatch
		}
	}
	return Match
}

// system is the number of one relation's rows that were deleted under the claim.
func (a *Account) system(oid uint32) (rows uint64) {
	for i := range a.Tallies {
		if a.Tallies[i].OID == oid && a.Tallies[i].Cause == System {
			rows += a.Tallies[i].Events
		}
	}
	return rows
}

func (r *Result) rows(oid uint32) int64 {
	for _, c := range r.ByRelation {
		if c.OID == oid {
			return c.Rows
		}
	}
	return 0
}
