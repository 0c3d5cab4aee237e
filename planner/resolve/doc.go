// Package resolve compares a policy with its table. Resolve returns what a version is made from, or all that is wrong with the policy, each
// problem with the key of the file and the fix. It changes nothing.
//
// resolve.go has the order, resolution.go what is found. An Entry (entry.go) is the first half, which needs no table: with it a change that lets no more fall due is made
// from the record alone, and takes no lock on the table. The other files are a question each: key, where, what its texts mean, shards, soft
// column, action, evidence, moves, triggers that are trusted, floors.
//
// A new key of a policy that the table has something to say of is one more such file, called in resolve.go; see ofTable in entry.go.
package resolve
