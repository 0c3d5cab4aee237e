// Package report makes a Report for auditors from a log and a period. The report has canonical JSON.
//
// A report is a function of the log's records only. For each number that must be zero it states the number, or why it was not assessed, and never
// claims more than the log shows. The package reads no clock, asks no database, and starts no goroutine. Its memory grows with policies, tables,
// days and gaps, but not with deletions.
//
//	Bounds.Record, Checkpoint ─▶ Bounds.End ─▶ Count.Record ─▶ Count.Report ─▶ Report.Canonical
//	first pass: the period's limits,           second pass: what is in the period
//	 counts of due rows, gaps, rewinds
//
// No file uses one that is listed below it:
//
//	wording, report, policy    the report's types and words; checked: findings outside the canonical form
//	canonical                  the report's bytes
//	question                   a period, and when a record was written
//	visibility, bounds         the first pass
//	counted, transaction       the second pass: deletions
//	catalog, count             policies, holds, quarantine; the pass itself
//	verdict, finish            the results
//
// The caller reads the log twice, verifies it each time, and says which checkpoints fit: this package trusts the caller.
//
//	problem                                        result
//	a period for which the log cannot answer       a *PeriodError with the periods for which it can
//	a transaction that names another time          a third pass; the transaction counts at the time of the heartbeats around it
//	a record of an unknown kind                    a count of such records, and a warning for every policy
//	deletions by a policy without other records    a policy without number that is not assessed
package report
