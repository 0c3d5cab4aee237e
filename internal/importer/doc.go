// Package importer reads how other systems let rows expire, and writes policies of Lapse for that. Each system is a Source with its own file,
// such as pgcron.go. A Source returns Items; Text makes a policy file of them.
//
// # What it promises
//
//   - A policy made from a job deletes no row that the job, running at the same instant, would keep. Where PostgreSQL's calendar leaves a
//     choice, rows go later, and a comment says so. Three differences remain: a row whose time is exactly the cutoff goes a microsecond
//     sooner if the job says < and not <=; numbers that the job rounds are off by up to a second; and a row at -infinity never
//     goes.
//   - Nothing is omitted silently: a comment takes the place of what could not be carried over, and gives the reason.
//   - PostgreSQL parses a job's statement and never runs it: the statement is the body of a temporary function, in a transaction that is
//     rolled back. The importer reads the text that PostgreSQL makes of the body. It knows a set of shapes and refuses all others.
//   - Each policy observes.
//
// # A job's statement
//
//	split        text → statements              pure; by PostgreSQL's lexical rules (lexer.go)
//	call         SELECT f() → its statements    if the function only deletes, one statement after the other (function.go)
//	parse        statement → normal form        by the server, as the body of a function (server.go)
//	read         normal form → Deletion         one table, its conditions, a limit (deletion.go, selection.go)
//	judge        conditions → expire, where     one condition gives the time (cutoff.go, moment.go); where must allow the others
//
// # Why nothing runs
//
// The text goes to the server in a message that may contain only one statement: PostgreSQL refuses "; commit; drop table" before it looks
// anything up. The statement begins with CREATE FUNCTION, and nothing can follow a function's body. PostgreSQL does not plan the body. While it
// parses it, it runs the input functions of the literals' types, and those of an array of a domain run the domain's CHECK, which may be anybody's
// code. So for a superuser's login it parses the statement with the rights of a role that can only read, which is rolled back
// too; for another login with that login's rights. A superuser's event triggers run as for any new function. While a statement is being
// parsed, PostgreSQL locks its tables as a DELETE does: for milliseconds, and it waits at most a second for a lock.
//
// # When something fails
//
//	what                              what is left    what is said
//	the process dies at any point     nothing         -
//	a statement cannot be parsed      nothing         a comment with PostgreSQL's message; the importer reads the other jobs
//	the server is read only           nothing         an error
//	a table is locked                 nothing         a comment: import again
package importer
