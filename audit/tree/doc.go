// Package tree makes the log one that an outsider checks: a Merkle tree over its records, checkpoints that sign the tree, and
// the tree as files of C2SP's formats, which other people's programs read.
//
// It knows no broker, no database and no clock. The auditor hands over records and gets headers and checkpoints; lapse events
// --export hands over the same records and gets files; lapse verify reads those with the public key alone.
//
// # What is proven, and what is not
//
// Two checkpoints under one name that both verify, and whose trees agree, show that the log only grew between them: no record
// that the first covers was changed, removed or put in between. A folder that verifies is the whole log up to its checkpoint.
//
// It is not proven that a record is true or that the log is complete. Who has the server and the key can write what they like, and can
// write another log before anybody else has seen a checkpoint of the first; without somebody who keeps checkpoints, at any
// time. An older copy of a folder verifies too: only who has seen a later checkpoint finds that.
//
// # Leaves
//
// A leaf is a record of the log, its value as it is in the topic. Where that is longer than an entry of C2SP's may be, a
// stand-in that names its SHA-256 is the leaf: see Entry. Fences, checkpoints and what somebody else wrote are no leaves. A
// leaf's index is in its header and has nothing to do with its offset in the topic.
//
// Each leaf's header also has its link: an HMAC under the log's key over the link of the leaf before and this leaf's hash. A
// start goes on only along that chain, so that a record which somebody put after the last checkpoint is never signed.
//
// # Who trusts whom
//
//	the auditor        its own links and, in a checkpoint, its own MAC; nothing else that the topic has
//	lapse events       --export: the chain where it has the log's key, else the indexes; both must come to the checkpoint's root
//	lapse verify       the public key that it is given, and the program itself
//	a foreign program  the same, and nothing of ours but the files
//
// # What a crash leaves
//
//	before a record is acknowledged     the next start finds it in the topic or not. If it is there, the chain goes on after it;
//	                                    if not, the slot sends the transaction again, and the same leaf is made again, unless a
//	                                    coverage record, which has a clock in it, takes its place: nobody has signed it yet
//	before a checkpoint is acknowledged the leaves are there and so is the chain; the next start signs them
//	between checkpoint and newer leaves the next start reads the checkpoint's edge and the leaves after it: never the whole log
//	within an export                    a folder without checkpoint, which is renamed into place last: it is no export; or, where one is gone on
//	                                    with, the former checkpoint beside files of a larger tree: it verifies again when that is repeated
//
// A checkpoint is made only over leaves that are acknowledged. So the tree shrinks only where brokers lose what they acknowledged,
// and then what was signed before is a fork.
package tree
