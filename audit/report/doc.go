// Package report makes of a log what an auditor reads: a Report, for a period, with canonical JSON.
//
// It is a function of the log's records and nothing else. It says of each number that must be zero what it is, or why it was not assessed,
// and never more than was seen. It reads no clock, asks no database, and starts no goroutine. Its memory grows with policies, tables, days and
// gaps, and with nothing that is deleted.
//
//	Bounds.Record, Checkpoint ─▶ Bounds.End ─▶ Count.Record ─▶ Count.Report ─▶ Report.Canonical
//	first pass: what bounds the period,        second pass: what is in it
//	 counts of what was due, gaps, rewinds
//
// No file needs one listed below it:
//
//	wording, report, policy    what a report has, and its words; checked: what was found beside it
//	canonical                  its one form as bytes
//	question                   a period, and when a record was written
//	visibility, bounds         the first pass
//	counted, transaction       the second: deletions
//	catalog, count             policies, holds, quarantine; the pass itself
//	verdict, finish            what comes of it
//
// The caller reads the log twice, verifies it each time, and says which checkpoints fit: this package believes what it is given.
//
//	what is wrong                                  what comes of it
//	a period that the log cannot answer for        a *PeriodError that says what it could answer for
//	a transaction that names another time          a third pass; it counts where the heartbeats around it are
//	a record of an unknown kind                    counted, and a warning of every policy
//	deletions by a policy that no record is about  a policy without number, that is not assessed
package report
