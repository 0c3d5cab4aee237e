package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
)

// Window is the time of day in which a policy may delete, from one time of day to another; if the second is earlier, it goes across midnight. It
// opens and closes once a day, whatever the clocks do: at the first instant at which clocks in the zone show at least the time of day. A window
// within an hour that clocks skip does not open on that day.
type Window struct {
	From, To TimeOfDay
	Zone     string

	place *time.Location // of Zone, once it is parsed
}

// TimeOfDay is what a clock shows, in minutes since midnight; 1440 is the midnight that ends a day.
type TimeOfDay int

const endOfDay TimeOfDay = 24 * 60

// String writes it as a clock does.
func (t TimeOfDay) String() string { return fmt.Sprintf("%02d:%02d", t/60, t%60) }

var windowPattern = regexp.MustCompile(`^([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])(?: +([^ ]+))?$`)

// ParseWindow reads "22:00-06:00 Europe/Berlin"; the zone is UTC if there is none.
func ParseWindow(text string) (Window, error) {
	parts := windowPattern.FindStringSubmatch(text)
	wrong := fmt.Errorf("%s is not two times of day and a zone: write for instance \"22:00-06:00 Europe/Berlin\"", yamldoc.Quote(text))
	if parts == nil {
		return Window{}, wrong
	}
	w := Window{From: timeOfDay(parts[1], parts[2]), To: timeOfDay(parts[3], parts[4]), Zone: parts[5]}
	if w.Zone == "" {
		w.Zone = utc
	}
	switch {
	case w.From >= endOfDay || w.To > endOfDay:
		return Window{}, wrong
	case w.From%endOfDay == w.To%endOfDay:
		return Window{}, errors.New("the window opens and closes at the same time: leave it out if it never closes")
	}
	var err error
	w.place, err = expiry.LoadZone(w.Zone)
	return w, err
}

// String writes it as the policy file does.
func (w Window) String() string { return w.From.String() + "-" + w.To.String() + " " + w.Zone }

// MarshalText writes it into JSON as a text.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (w *Window) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWindow(string(text))
	return err
}

// Open reports whether the window is open at an instant. until is when it closes next, or, if it is closed, when it opens next.
func (w Window) Open(at time.Time) (open bool, until time.Time, err error) {
	zone := w.place
	if zone == nil {
		if zone, err = expiry.LoadZone(w.Zone); err != nil {
			return false, time.Time{}, err
		}
	}
	// From two days before, because it may be open across midnight, and a skip at midnight puts an instant into the
	// following day.
	day := dayOf(at, zone).before(2)
	for ; ; day = day.next() {
		opens, closes := w.onDay(day, zone)
		switch {
		case open && opens.After(until):
			return true, until, nil
		case open:
			until = later(until, closes) // one day's opening lasts into the next day's
		case !closes.After(opens) || !closes.After(at):
		case opens.After(at):
			return false, opens, nil
		default:
			open, until = true, closes
		}
	}
}

// onDay returns when the opening that begins on a day begins and ends.
func (w Window) onDay(d day, zone *time.Location) (opens, closes time.Time) {
	last := d
	if w.To <= w.From {
		last = d.next()
	}
	return firstShowing(d.at(w.From), zone).UTC(), firstShowing(last.at(w.To), zone).UTC()
}

// Length is how long the window is open each day, except on days on which clocks change.
func (w Window) Length() time.Duration {
	minutes := w.To - w.From
	if minutes <= 0 {
		minutes += endOfDay
	}
	return time.Duration(minutes) * time.Minute
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
