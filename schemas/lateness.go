package schemas

import "time"

// LatenessSteps are the bounds, in seconds, between which the log has how late after its due time a row went, or was still there. All are at least
// a minute, so that the lateness of a single row reveals no more of the row's due time than the time of its deletion does.
var LatenessSteps = [...]int64{
	60, 5 * 60, 15 * 60, hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 3 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

const (
	hour = 60 * 60
	day  = 24 * hour
)

// LatenessStep is the index of the first step that is not exceeded by the time from due to at; len(LatenessSteps) if all are.
func LatenessStep(due, at time.Time) int {
	late := at.Unix() - due.Unix() // a time.Duration overflows after 292 years
	if at.Nanosecond() > due.Nanosecond() {
		late++
	}
	step := 0
	for step < len(LatenessSteps) && late > LatenessSteps[step] {
		step++
	}
	return step
}
