// Package batch is the part of the executor in which a row can go: one session, one transaction at a time. Whether a batch may run, when,
// and what is done about its error is the executor's to say.
//
// # Order
//
//	Connect            one connection that takes leases, one for batches         session.go, answer.go
//	FunctionsToDelete  what a batch of a policy version is to run, and its digest functions.go
//	Session.Acquire    the lease of a shard: nobody else works on it              lease.go
//	Assign             what batches on it claim                                   batch.go
//	Session.TakeRows   what the policy's limits leave of a batch                  rows.go
//	Session.Delete     one batch:                                                 batch.go
//	   1  the session made clean, BEGIN; xid, clock, versions of the functions:
//	      one round trip                                                          transaction.go
//	   2  are the functions what this program makes? Read only where their
//	      versions are new                                                        functions.go
//	   3  the claim, signed; the deletion function; are the functions' versions
//	      still the same, and is no cursor left for COMMIT?: one round trip       batch.go
//	   4  do the counts add up with each other, the order and the claim?          batch.go
//	   5  COMMIT: one round trip, with 1 of the next batch where one follows      transaction.go
//	Session.IsOver, InLedger   what became of a COMMIT without an answer          outcome.go
//	Session.Release, PutAside  the lease's end                                    lease.go
//
// Session.Drop is a batch that drops the shard's leaf whole (drop.go). Session.FindDue asks in a transaction that cannot write which leaves
// have due rows (due.go).
//
// # When something fails
//
//	what                               is left                      the caller gets
//	crash before COMMIT is sent        nothing of the batch         -; the shard is free when its lease ends
//	crash after it                     all of the batch or nothing  -; the cursor is part of it
//	no answer to COMMIT                all of the batch or nothing  *UnknownCommit; IsOver and InLedger say what happened
//	any other error, COMMIT's too      nothing of the batch         that error; the transaction is rolled back, or else the
//	                                                                connection closed
//	a function differs, before or      nothing of the batch         *TamperedError, ErrFunctionsChanged or ErrNoFunction
//	within the batch
//	counts that do not add up          nothing of the batch         *CountsError
//	a lease that is another's by now   nothing of the batch         the deletion function's refusal
//
// # What it trusts
//
// The deletion function, once its text, owner, settings and grants are found to be those that this program makes; PostgreSQL's catalog and
// its answers. It trusts nothing that the table's owner can change: code of the table may run in the connection for batches, so that one
// begins each batch clean, has no statement with a name, and reads nothing that the executor believes but the counts, which are checked.
// Leases, the claim's facts and the catalog of functions are asked in statements that no code of a table's comes before in its transaction.
// It trusts no login: another process with the executor's login can call the same functions, and lacks the key that signs the claim.
package batch
