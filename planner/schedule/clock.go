package schedule

import (
	"strconv"
	"time"
)

const utc = "UTC"

// day is a day of a zone's calendar, as midnight of its date in UTC.
type day time.Time

// dayOf is the day that clocks in a zone show.
func dayOf(t time.Time, zone *time.Location) day {
	year, month, d := t.In(zone).Date()
	return day(time.Date(year, month, d, 0, 0, 0, 0, time.UTC))
}

func (d day) next() day        { return day(time.Time(d).AddDate(0, 0, 1)) }
func (d day) before(n int) day { return day(time.Time(d).AddDate(0, 0, -n)) }
func (d day) date() (int, int) { return int(time.Time(d).Month()), time.Time(d).Day() }
func (d day) weekday() int     { return int(time.Time(d).Weekday()) }

// at is what clocks show at a time of that day, written in UTC.
func (d day) at(t TimeOfDay) time.Time { return time.Time(d).Add(time.Duration(t) * time.Minute) }

// timeOfDay is made of digits that a pattern has found.
func timeOfDay(hour, minute string) TimeOfDay {
	h, _ := strconv.Atoi(hour)
	m, _ := strconv.Atoi(minute)
	return TimeOfDay(h*60 + m)
}

// shown is what clocks in a zone show, written in UTC.
func shown(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// reach is further than any zone is, or jumps: a day and some hours.
const reach = 27 * time.Hour

// firstShowing returns the first instant at which clocks in zone show at least what wall shows in UTC.
func firstShowing(wall time.Time, zone *time.Location) time.Time {
	_, before := wall.Add(-reach).In(zone).Zone()
	_, after := wall.Add(reach).In(zone).Zone()
	first := time.Time{}
	for _, offset := range []int{before, after} {
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, there := at.In(zone).Zone(); there == offset && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		return first
	}
	// Clocks skip it: read with the offset before the skip, it lies just after it.
	start, _ := wall.Add(-time.Duration(before) * time.Second).In(zone).ZoneBounds()
	return start
}
