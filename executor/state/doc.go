// Package state is what an executor remembers of a database outside of it, where nobody audits what is deleted.
//
// From inside a database a restored copy and a restart look alike. With an audit the log tells them apart. With audit: off this does: a
// small file, and a row of lapse.memory that counts with it.
//
// # What it promises
//
//   - A database that lacks the last beat in the file is an older copy: it is held back until a person has accepted it.
//   - So is one that has all beats, but is reached at another address than before, and by a server that was started since: a copy
//     elsewhere, or a server that moved.
//   - A restart at the same address never asks, whatever stopped server or executor. Nor does another address of the server as it runs.
//   - The answer is a row of lapse.history, as everywhere: a history that no file knows was accepted by somebody since.
//
// # What it refuses
//
// To ask where it knows nothing: without a folder, and at an executor's first check of a database, there is nothing to compare. To
// compare positions in the write-ahead log: an old copy that is written to passes every one of them. To believe a row that is pruned:
// no ledger row is part of this.
//
// # Order
//
// A beat is one more in lapse.memory, durable on the server's own disk whatever synchronous_commit says, and then the file. So the
// database never has fewer beats than its file, unless it is another one.
//
//	crash before the commit           nothing has happened
//	crash before the file is there    the database is ahead by one, which is no reason to ask
//	crash while the file is written   the former one is still there: the new one takes its name when it is on disk
//	the server crashes                what the file says is on its disk. With fsync = off and a machine that dies it may not be: then
//	                                  the database is an older one, and a person is asked
//
// A file is of one database at one address, so that an original and its copy never write the same one. Executors that share a folder
// share the file; the higher beat stays.
package state
