// Package page is the page that `lapse serve` has at /: what `lapse status` says, for a browser. It only reads, and answers GET and HEAD.
//
//	page.go      the addresses, and what is asked of the database for them
//	kept.go      what was read last: the database is asked as often for ten people as for one
//	protect.go   headers, and which Host is answered
//	overview.go  the policies, and what holds for the whole database
//	policy.go    one policy: its functions, versions and runs
//	days.go      what was deleted by day, counted once a day
//	chart.go     the pictures of it
//	pipeline.go  the way of a deletion, as one picture
//	files        templates, style, and the script that refreshes
//
// The words are internal/status's. The first view needs no script: a browser without one asks again every half minute.
//
// An answer never waits for the database longer than Patience. What is known is shown, with its age and with what is wrong:
//
//	the database is slow, or down    what was read last, and since when nothing newer was
//	it has never answered            the page says so, with status 503
//	nobody looks at the page         nothing is read
//
// Nothing of a row is shown: of the quarantine and of holds there are numbers, and of an error its SQLSTATE. Names are shown as they are,
// escaped, with what would change the direction of text made visible.
package page
