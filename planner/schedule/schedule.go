package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
)

// Schedule says when a policy runs: so long after the last run's start, daily at a time of day, or by cron; and when it may
// not.
type Schedule struct {
	Every  expiry.Interval
	Daily  *Daily
	Cron   *Cron
	Window *Window // nil: always open
	// Spread is a policy's own place in the period of Every: see staggered. 0: none.
	Spread uint64
}

// SpreadOf is the place of a policy, by its name.
func SpreadOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// staggerShare: a run may be early by 1/staggerShare of the period, so that policies that began together drift apart.
const staggerShare = 10

// placesApart: places are whole multiples of it, so that policies that run often are due at the same instants, and share their looks.
const placesApart = 100 * time.Millisecond

const longestStaggered = 366 * 24 * time.Hour

// staggered moves a run that Every says is due at next forward by up to a tenth of the period, toward the policy's place in the period. So policies
// that were applied together, or were all late after a restart, begin at different times after at most ten periods, and each then runs at the same
// place of every period. No run is later. A period of months or years has no places.
func (s Schedule) staggered(next time.Time) time.Time {
	exact := s.Every.Exact()
	if s.Spread == 0 || s.Every.Months != 0 || exact < staggerShare || exact > longestStaggered.Microseconds() {
		return next
	}
	period := time.Duration(exact) * time.Microsecond
	place := time.Duration(s.Spread % uint64(period)).Truncate(placesApart)
	past := (time.Duration(next.UnixNano())%period + period - place) % period
	return next.Add(-min(past, period/staggerShare))
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
		d.Zone = utc
	}
	if _, err := expiry.LoadZone(d.Zone); err != nil {
		return Daily{}, err
	}
	d.Hour, _ = strconv.Atoi(parts[1])
	d.Minute, _ = strconv.Atoi(parts[2])
	return d, nil
}

// Next returns when the next run is due. last is the start of the last one, zero if there was none; since is when the policy came into its state.
// Outside the window it is due when the window opens. A result in the past means at once or, if the window is closed by then, when it opens: see
// Window.Open. A missed run is made up for once.
//
// A policy that has never run is due at once with every, and at the next time of day with daily and cron.
func (s Schedule) Next(last, since time.Time) (time.Time, error) {
	at, err := s.next(last, since)
	if err != nil {
		return at, err
	}
	return s.Opens(at)
}

// Opens returns the first instant from at on at which the window is open: at itself where there is no window.
func (s Schedule) Opens(at time.Time) (time.Time, error) {
	if s.Window == nil {
		return at, nil
	}
	open, until, err := s.Window.Open(at)
	if err != nil || open {
		return at, err
	}
	return until, nil
}

func (s Schedule) next(last, since time.Time) (time.Time, error) {
	switch never := last.IsZero(); {
	case s.Daily == nil && s.Cron == nil && never:
		return since, nil
	case s.Daily == nil && s.Cron == nil:
		return s.staggered(s.Every.After(last)), nil
	case never:
		last = since
	}
	if s.Cron != nil {
		return s.Cron.next(last)
	}
	return s.Daily.next(last)
}

// next returns the first instant after t at which a clock in the zone shows the time of day: the end of a skip if clocks skip it, the first of
// two if they show it twice.
func (d *Daily) next(t time.Time) (time.Time, error) {
	zone, err := expiry.LoadZone(d.Zone)
	if err != nil {
		return time.Time{}, err
	}
	// From the day before, because a skip at midnight can put an instant into the following day.
	for day := dayOf(t, zone).before(1); ; day = day.next() {
		if at := firstShowing(day.at(TimeOfDay(d.Hour*60+d.Minute)), zone); at.After(t) {
			return at.UTC(), nil
		}
	}
}

// The years that are checked to see whether a window is ever open: some leap years among them, and always the same ones.
var (
	firstLook = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	lastLook  = time.Date(2033, 1, 1, 0, 0, 0, 0, time.UTC)
)

// NeverOpen reports whether the window is closed at every time at which the schedule (daily or cron) says to begin, so that no run would begin
// when it should.
func (s Schedule) NeverOpen() (bool, error) {
	if s.Window == nil || s.Daily == nil && s.Cron == nil {
		return false, nil
	}
	for at := firstLook; at.Before(lastLook); {
		begins, err := s.next(at, at)
		if err != nil {
			return false, err
		}
		open, opens, err := s.Window.Open(begins)
		if err != nil || open {
			return false, err
		}
		at = opens.Add(-time.Nanosecond) // no run before that is within it
	}
	return true, nil
}
