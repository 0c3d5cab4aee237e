package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
)

// Schedule says when a policy runs: so long after the last run's start, or daily at a time of day.
type Schedule struct {
	Every  expiry.Interval
	Daily  *Daily
	Cron   *Cron
	Window *Window // nil: always open
}

// Daily is a time of day in a zone.
type Daily struct {
	Hour, Minute int
	Zone         string
}

// String writes it as the policy file does.
func (d Daily) String() string { return fmt.Sprintf("%02d:%02d %s", d.Hour, d.Minute, d.Zone) }

// MarshalText writes it into JSON as a text.
func (d Daily) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Daily) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDaily(string(text))
	return err
}

var dailyPattern = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9])(?: +([^ ]+))?$`)

// ParseDaily reads a time of day and a zone, UTC if there is none.
func ParseDaily(text string) (Daily, error) {
	parts := dailyPattern.FindStringSubmatch(text)
	if parts == nil {
		return Daily{}, fmt.Errorf("%s is not a time of day and a zone: write for instance \"03:00 Europe/Berlin\"", yamldoc.Quote(text))
	}
	d := Daily{Zone: parts[3]}
	if d.Zone == "" {
		d.Zone = "UTC"
	}
	if _, err := expiry.LoadZone(d.Zone); err != nil {
		return Daily{}, err
	}
	d.Hour, _ = strconv.Atoi(parts[1])
	d.Minute, _ = strconv.Atoi(parts[2])
	return d, nil
}

// Next returns when the next run is due. last is the start of the last one, zero if there was none; since is when the
// policy came into its state. An answer in the past means at once: a daily run that was missed is made up for, one time.
//
// A policy that has never run runs at once with every, and at the next time of day with daily.
func (s Schedule) Next(last, since time.Time) (time.Time, error) {
	if s.Daily == nil {
		if last.IsZero() {
			return since, nil
		}
		return s.Every.After(last), nil
	}
	if last.IsZero() {
		last = since
	}
	return s.Daily.next(last)
}

// next returns the first instant after t at which a clock in the zone shows the time of day. Where clocks skip it, that
// is the end of the skip; where they show it twice, the first.
func (d *Daily) next(t time.Time) (time.Time, error) {
	zone, err := expiry.LoadZone(d.Zone)
	if err != nil {
		return time.Time{}, err
	}
	// From the day before, because a skip at midnight can put an instant into the following day.
	year, month, day := t.In(zone).Date()
	for ahead := -1; ; ahead++ {
		if at := firstShowing(time.Date(year, month, day+ahead, d.Hour, d.Minute, 0, 0, time.UTC), zone); at.After(t) {
			return at.UTC(), nil
		}
	}
}

// firstShowing returns the first instant at which clocks in zone show at least what wall shows in UTC.
func firstShowing(wall time.Time, zone *time.Location) time.Time {
	// No zone is, or jumps, further than a day and some hours.
	const reach = 27 * time.Hour
	_, before := wall.Add(-reach).In(zone).Zone()
	_, behind := wall.Add(reach).In(zone).Zone()
	first := time.Time{}
	for _, offset := range []int{before, behind} {
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, there := at.In(zone).Zone(); there == offset && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		return first
	}
	// Clocks skip it: read with the offset before the skip, it lies just behind it.
	start, _ := wall.Add(-time.Duration(before) * time.Second).In(zone).ZoneBounds()
	return start
}
