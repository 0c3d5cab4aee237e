// Package schedule says when a policy runs, and when it may not. It knows instants and zones, and no database.
//
//	schedule.go   Schedule: when the next run is due, and daily
//	cron.go       five fields and a zone; cronfield.go reads them
//	window.go     the time of day in which a policy may delete
//	clock.go      what clocks in a zone show at an instant, and the other way round
//
// It promises that a missed run is made up for once: at once, or when the window opens; that a time of day that clocks skip or show twice comes
// exactly once a day; and that a window opens and closes once a day. A cron of every hour follows elapsed hours instead. It refuses zones that
// are no names of places, days that never come, and windows that never close. NeverOpen finds windows that are never open when a run begins.
package schedule
