package record

import (
	"reflect"
	"slices"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
)

// MoreFallDue reports whether a row may be due under to that is not due under from. It returns false only if that is certain: the same table, the
// same action, and a condition that is certainly no wider.
func MoreFallDue(from, to *Version) bool {
	return from.Table != to.Table || from.Spec.Action != to.Spec.Action || to.Definition.Condition().MoreThan(from.Definition.Condition())
}

// Covers reports whether w certainly deletes everything that v deletes, by the same action and with the same triggers.
func (w *Version) Covers(v *Version) bool {
	return !MoreFallDue(w, v) && reflect.DeepEqual(w.Definition.Soft, v.Definition.Soft) &&
		w.Spec.Triggers == v.Spec.Triggers && slices.Equal(w.Spec.Trusted, v.Spec.Trusted)
}

// ForRowsOf is w restricted to the rows that fall due under v, which w covers: it continues while w is held back.
func (w *Version) ForRowsOf(v *Version) *Version {
	is := *w
	is.Definition.Expire, is.Definition.Where = v.Definition.Expire, v.Definition.Where
	is.Spec.Expire, is.Spec.Where, is.Spec.WhereRead = expiry.Record{Kind: v.Definition.Expire}, v.Spec.Where, v.Spec.WhereRead
	is.Spec.Ranges, is.Spec.Functions, is.Spec.HeldAgainst, is.Spec.Due = is.Definition.Ranged(), is.Definition.Digest(), 0, nil
	if is.Spec.Evidence == policyfile.EvidenceDue {
		is.Spec.Due, _ = expiry.Elsewhere(is.Definition.Expire)
	}
	is.Entry = v.Entry
	return &is
}

// PublishesChanges reports whether inserts and updates of the policy's table are published too, not only deletes.
func (p *InForce) PublishesChanges() bool { return p.Current().PublishesChanges() }

// DetectsMoves reports whether rows that move to another partition are told from deletions.
func (p *InForce) DetectsMoves() bool { return p.Spec.Moves == policyfile.MovesDetect }

// PublishesChanges reports whether inserts and updates of the table are published under the version.
func (w *Version) PublishesChanges() bool {
	return w.Definition.Soft != nil || w.Spec.Moves == policyfile.MovesDetect
}
