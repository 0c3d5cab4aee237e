// Package index says whether an index finds a policy's due rows on every leaf, and which statements make the one that is missing. It reads
// the catalog and changes nothing.
//
//	Look      the index that serves, or what to do without one    index.go, over the partitions' tree in tree.go
//	Children  foreign keys that a deletion follows without one    children.go
//
// text.go compares expressions and predicates in PostgreSQL's spelling. If it does not recognize two equal ones, it advises one index too many; it
// never overlooks a missing one.
package index
