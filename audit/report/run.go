package report

import (
	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// Run counts what one run of a policy deleted, if the report was asked about a run: one turn of the policy, in any number of batches.
type Run struct {
	Run     string `json:"run"`
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	// Cutoff is the instant at which rows had to be due.
	Cutoff     Instant `json:"cutoff"`
	First      Instant `json:"first"` // the first commit
	Last       Instant `json:"last"`
	FirstLeaf  int64   `json:"first_leaf"`
	LastLeaf   int64   `json:"last_leaf"`
	Batches    int64   `json:"batches"`
	ByRow      int64   `json:"by_row"`
	ByDrop     int64   `json:"by_drop"`
	Soft       int64   `json:"soft"`
	Cascaded   int64   `json:"cascaded"`
	Due        int64   `json:"due"`        // as the auditor recorded
	NotDue     int64   `json:"not_due"`    // as the auditor recorded
	Mismatches int64   `json:"mismatches"` // transactions whose claim differs from their events
}

// ofRun takes a claim that may belong to the run: a new batch of it, or a drop.
func (c *Count) ofRun(p place, claim *schemas.Claim, at *evidence.Committed) *Run {
	asked := c.bounds.question.Run
	if asked == (uuid.UUID{}) || claim == nil || claim.Run != asked {
		return nil
	}
	if !p.within {
		c.runOutside = true
		return nil
	}
	r := c.run
	if r == nil {
		r = &Run{
			Run: asked.String(), Policy: string(claim.Policy), Version: int64(claim.PolicyVersion), Cutoff: At(claim.Cutoff), First: At(at.CommitTime), FirstLeaf: p.leaf,
		}
		c.run = r
	}
	r.Last, r.LastLeaf = At(at.CommitTime), p.leaf
	return r
}

// runTransaction counts a transaction for the run that was asked about.
func (c *Count) runTransaction(t *transaction) {
	r := c.ofRun(t.place, t.content.Claim, &t.content.Committed)
	if r == nil {
		return
	}
	r.Batches++
	if t.content.Verdict == evidence.Mismatch {
		r.Mismatches++
	}
	for i := range t.observed {
		tally := &t.observed[i]
		n := int64(tally.Events)
		switch {
		case tally.Cause != evidence.System || tally.Op == evidence.Drop:
		case tally.Cascade:
			r.Cascaded += n
		case tally.Op == evidence.SoftDelete:
			r.Soft += n
		default:
			r.ByRow += n
		}
		if tally.Cause == evidence.System {
			r.Due, r.NotDue = r.Due+int64(tally.Due), r.NotDue+int64(tally.NotDue)
		}
	}
}

// askedRun returns the counts of the run. All of the run must be in the period.
func (c *Count) askedRun() (*Run, error) {
	asked := c.bounds.question.Run
	switch {
	case asked == (uuid.UUID{}):
		return nil, nil
	case c.runOutside:
		return nil, noPeriod("run %s has deletions outside the period: ask for a longer one", asked)
	case c.run == nil:
		return nil, noPeriod("the log has no deletion of run %s in the period", asked)
	}
	return c.run, nil
}
