// Package tree lets outsiders check the log. It builds a Merkle tree over the log's records, signs the tree in checkpoints, and writes the
// tree as files in C2SP's formats, which other programs read.
//
// It knows no broker, no database and no clock. The auditor passes records in and gets headers and checkpoints back; lapse events
// --export passes the same records and gets files; lapse verify reads the files with only the public key.
//
// # What is proven, and what is not
//
// If two checkpoints under one name verify and their trees agree, the log only grew between them: no record that the first one covers
// was changed, removed or inserted. A folder that verifies is the whole log up to its checkpoint.
//
// It is not proven that a record is true or that the log is complete. An attacker with the server and the key can write anything, and can
// replace the log as long as nobody else has seen one of its checkpoints; if nobody keeps checkpoints, at any time. An older
// copy of a folder verifies too: only a reader that has seen a later checkpoint notices.
//
// # Leaves
//
// A leaf is the value of a log record, as stored in the topic. If the value is longer than a C2SP entry may be, the leaf is a stand-in
// that names its SHA-256: see Entry. Fences, checkpoints and other writers' records are not leaves. A leaf's header has its index, which
// is independent of the record's offset in the topic.
//
// Each leaf's header also has its link: an HMAC under the log's key over the previous leaf's link and this leaf's hash. A start
// continues only along that chain, so the auditor never signs a record that another writer put after the last checkpoint.
//
// # Who trusts whom
//
//	the auditor        its own links and, in a checkpoint, its own MAC; nothing else in the topic
//	lapse events       --export: the chain if it has the log's key, otherwise the indexes; both must produce the checkpoint's root
//	lapse verify       the public key that the user passes, and the program itself
//	a foreign program  the same, and nothing of Lapse but the files
//
// # What a crash leaves
//
//	before a record is acknowledged     The next start may find it in the topic. If it does, the chain continues after it. If not, the
//	                                    slot sends the transaction again and the auditor makes the same leaf again, unless a coverage
//	                                    record, which contains a time, takes its place: nobody has signed the leaf yet.
//	before a checkpoint is acknowledged The leaves and the chain are in the topic; the next start signs them.
//	between checkpoint and newer leaves The next start reads the checkpoint's edge and the leaves after it: never the whole log.
//	within an export                    A new folder has no checkpoint, which is renamed into place last, and is no export. A continued folder
//	                                    has its former checkpoint and files of a larger tree; it verifies again once the export is repeated.
//
// A checkpoint covers only acknowledged leaves. So the tree shrinks only if brokers lose what they acknowledged; what was signed before
// is then a fork.
package tree
