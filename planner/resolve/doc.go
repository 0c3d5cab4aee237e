// Package resolve compares a policy with its table. Resolve returns what a version is made from, or everything that is wrong with the policy,
// each problem with its key of the file and the fix. It changes nothing.
//
// resolve.go has the order, resolution.go the result. An Entry (entry.go) is the first half, which needs no table: with it, a change that
// lets no more rows fall due is made from the record alone, and takes no lock on the table. Each other file answers one question: key, where,
// what the texts mean, shards, soft column, action, evidence, moves, trusted triggers, floors.
//
// A new key of a policy that depends on the table is one more such file, called in resolve.go; see ofTable in entry.go.
package resolve
