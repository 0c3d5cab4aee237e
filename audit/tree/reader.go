package tree

import "lapse/schemas"

// Reader tells the log's leaves from what else its topic has, record by record. Its zero value and a tree begin where the tree ends.
type Reader struct {
	Tree    *Tree
	Signed  int64  // leaves that the tree had from a checkpoint
	Note    []byte // of that checkpoint
	Foreign int    // records that the chain does not have: somebody else wrote them
	Adopted int64  // leaves of a log that had no tree, which are taken as they are
}

// Take takes the next record that looks like one of the log, and reports whether it is the next leaf. If none before it has a place in a
// tree, neither needs this one.
func (r *Reader) Take(rec *schemas.Record) bool {
	index, placed := IndexOf(rec)
	switch {
	case r.Tree.Follows(rec):
		return true
	case placed && index < r.Signed: // appended, and not acknowledged, when the checkpoint's offset was asked for
		return false
	case !placed && r.Signed == 0 && r.Adopted == r.Tree.Size():
		r.Tree.Add(r.Tree.Next(rec.Value))
		r.Adopted++
		return true
	}
	r.Foreign++
	return false
}
