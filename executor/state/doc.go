// Package state is what an executor remembers of a database, outside of it, if the database has no audit.
//
// Inside a database, a restored copy looks like a restart. With an audit, the log shows the difference. With audit: off this package
// does: it compares a small file with a row of lapse.memory that counts beats.
//
// # What it promises
//
//   - A database that lacks the last beat in the file is an older copy: nothing is deleted until a person accepts it.
//   - The same holds for a database that has all beats, but is reached at another address, on a server that was started since: a copy
//     elsewhere, or a server that moved.
//   - A restart at the same address needs no acceptance, whatever stopped the server or the executor. Nor does another address of a
//     server that was not restarted.
//   - A person accepts by a row of lapse.history, as with an audit: a history that no file knows was accepted since.
//
// # What it refuses
//
// To compare anything if there is nothing to compare with: without a folder, and at an executor's first check of a database. To compare
// positions in the write-ahead log, because an old copy that is written to passes every one of them. To rely on rows that are pruned: it
// uses no ledger row.
//
// # Order
//
// A beat increments the count in lapse.memory, durable on the server's own disk whatever synchronous_commit says, and then writes the
// file. So the database never has fewer beats than its file, unless it is a copy.
//
//	crash before the commit           nothing has happened
//	crash before the file is written  the database is ahead by one, which is harmless
//	crash while the file is written   the old file is still there: the new one replaces it once it is on disk
//	the server crashes                its disk has what the file says. With fsync = off, a machine that crashes may lose it: then the
//	                                  database is older than its file, and a person must accept it
//
// A file belongs to one database at one address, so an original and its copy never write the same one. Executors that share a folder
// share the file; the higher beat stays.
package state
