// Package report makes of a log what an auditor reads: a Report, for a period, with canonical JSON.
//
// It is a function of the log's records and nothing else. It says of each number that must be zero what it is, or why it was not assessed,
// and never more than was seen. It reads no clock, asks no database, and starts no goroutine. Its memory grows with policies, tables and
// days, and with nothing that is deleted.
//
//	report     what a report has; policy: what it has of one policy
//	canonical  their one form as bytes
//	wording    what their codes mean, for people
//	checked    what depends on who makes a report, and is no part of it
package report
