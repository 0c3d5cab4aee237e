// Package importer reads how another system lets rows expire, and writes it as policies of Lapse. A system is a Source, and one file:
// pgcron.go and the rest. What is there comes as Items; Text makes a policy file of them.
//
// # What it promises
//
//   - A policy that comes from a job deletes no row that the job, running at the same instant, would not delete too. Where PostgreSQL's
//     calendar leaves it open, rows go later, and a comment says so. Three differences are left: a row whose time is exactly the
//     cutoff goes a microsecond sooner where the job says < and not <=; numbers that the job rounds are rounded by up to a second; and a
//     row that is -infinity never goes.
//   - Nothing is left out in silence: what is not carried over is a comment in its place, with the reason.
//   - A job's statement is parsed by PostgreSQL and never run: it is the body of a temporary function, in a transaction that is rolled back.
//     What is read is what PostgreSQL writes back of it, by shapes that are known; all others are refused.
//   - Each policy observes.
//
// # A job's statement
//
//	split        text → statements              pure; by PostgreSQL's lexical rules (lexer.go)
//	call         SELECT f() → its statements    where they are deletions one after the other (function.go)
//	parse        statement → normal form        by the server, as the body of a function (body.go)
//	read         normal form → Deletion         one table, its conditions, a limit (deletion.go, selection.go)
//	judge        conditions → expire, where     one says when (cutoff.go, moment.go); the others must be what where may say
//
// # Why nothing runs
//
// The text goes to the server as one message that may hold one statement alone: "; commit; drop table" is refused before anything is
// looked up. That statement begins with CREATE FUNCTION, and nothing can follow the body of one. PostgreSQL plans no body. What it does run
// while it parses are the input functions of literals' types; those of a domain's array run the domain's CHECK, which may be anybody's. So
// for a superuser's login the statement is parsed with the rights of a role that can read and do nothing else, which is rolled back
// too; for another login with its own. Event triggers of a superuser's run as for any function that is made. The tables that a statement
// names are locked as by a DELETE while it is parsed: for milliseconds, and it waits no longer than a second for a lock.
//
// # When something fails
//
//	what                              what is left    what is said
//	we die at any point               nothing         -
//	a statement cannot be parsed      nothing         a comment with PostgreSQL's message; the other jobs are read
//	the server is read only           nothing         an error
//	a table is locked                 nothing         a comment: import again
package importer
