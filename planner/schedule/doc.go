// Package schedule says when a policy runs. It knows instants and zones, and no database.
//
// It promises that a run that was missed is made up for once and at once, and that a time of day which clocks skip or show
// twice comes exactly once a day. It refuses zones that are no names of places.
//
// A new way to say when is a field of Schedule and a file of its own: cron.go, window.go.
package schedule
