package tree

import "lapse/schemas"

// Reader tells the log's leaves from the topic's other records. It continues from the tree that it is given.
type Reader struct {
	Tree    *Tree
	Signed  int64  // leaves that the tree already had, from a checkpoint
	Note    []byte // that checkpoint's note
	Foreign int    // records outside the chain, which others wrote
	Adopted int64  // leaves from before the log had a tree, which are not checked
}

// Take takes the next record that looks like one of the log, and reports whether it is the next leaf. A record without an index is a leaf
// only if no record before it has one.
func (r *Reader) Take(rec *schemas.Record) bool {
	index, placed := IndexOf(rec)
	switch {
	case r.Tree.Follows(rec):
		return true
	case placed && index < r.Signed: // when the auditor read the checkpoint's offset, it was appended but not acknowledged
		return false
	case !placed && r.Signed == 0 && r.Adopted == r.Tree.Size():
		r.Tree.Add(r.Tree.Next(rec.Value))
		r.Adopted++
		return true
	}
	r.Foreign++
	return false
}
