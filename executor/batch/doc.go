// Package batch is the part of the executor that can delete rows: one session, one transaction at a time. The executor decides whether
// and when a batch runs, and what to do about its error.
//
// # Order
//
//	Open, Complete     one connection that takes leases, one for batches         session.go, patience.go
//	Foresee            compares functions before a batch needs them               functions.go
//	FunctionsToDelete  functions that batches of a version run; their digest      functions.go
//	Session.Acquire    the lease of a shard: no other worker works on it          lease.go
//	Assign             what its batches put in their claims                        batch.go
//	Session.TakeRows   how many rows the policy's limits grant                    rows.go
//	Session.Delete     one batch:                                                 batch.go
//	   1  ask for the functions' versions; clean the session, BEGIN, read xid
//	      and clock: two round trips                                              transaction.go
//	   2  compare the functions with what this program makes, unless these
//	      versions were compared before                                           functions.go
//	   3  pause, if the order has one; sign the claim; call the deletion function,
//	      which pauses after each portion; check that the versions
//	      are the same and no cursor outlives COMMIT: one round trip              batch.go
//	   4  check the counts against each other, the order and the claim            batch.go
//	   5  COMMIT: one round trip, with BEGIN of the next batch if one follows     transaction.go
//	Session.IsOver, InLedger   the outcome of a COMMIT without an answer          outcome.go
//	Session.Release, PutAside  end a lease                                        lease.go
//
// Session.Drop is a batch that drops the shard's whole leaf (drop.go). Session.FindDue asks, in a read-only transaction, which leaves
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
//	a lease that another worker has     nothing of the batch         the deletion function's refusal
//
// # What it trusts
//
// It trusts the deletion function, once the function's text, owner, settings and grants are those that this program makes, and
// PostgreSQL's catalog and answers. It trusts nothing that the table's owner can change. The table's code may run in the Batches
// connection, so each batch first cleans that connection, prepares no statements in it, and believes nothing from it but the counts,
// which it checks. Leases, the claim's facts and the catalog of functions are read in statements that no table code can precede in
// their transaction. It trusts no login either: another process with the executor's login can call the same functions, but lacks the
// key that signs the claim.
package batch
