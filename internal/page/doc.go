// Package page is the page that `lapse serve` shows at /: what `lapse status` says, for a browser, and at /api/status for a program. It only reads, and answers GET and HEAD.
//
//	page.go      the addresses, and the queries for them
//	kept.go      the last results: ten readers cause no more queries than one
//	protect.go   headers, and which Host is answered
//	overview.go  the policies, and the state of the whole database
//	policy.go    one policy: its functions, versions and runs
//	days.go      the deletions by day, counted once a day
//	chart.go     charts of the deletions
//	pipeline.go  the way of a deletion, as one picture
//	files        templates, style, and the script that refreshes
//
// internal/status has the words. The page needs no script: without one the browser reloads it every half minute.
//
// An answer waits for the database at most Patience. Then it shows the last results, with their age and what is wrong:
//
//	the database is slow, or down    the last results, and their age
//	it has never answered            the page says so, with status 503
//	nobody looks at the page         nothing is read
//
// The page shows no part of a row: only counts of the quarantine and of holds, and the SQLSTATE of an error. It escapes names, and makes
// characters that change the direction of text visible.
package page
