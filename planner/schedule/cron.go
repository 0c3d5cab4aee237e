package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
)

// Cron is a schedule in five fields and a zone: "15 3 * * mon-fri Europe/Berlin".
//
// A run at a time of day that clocks skip comes right after the skip, and one that they show twice comes once. A cron of every hour (its second
// field begins with *) follows elapsed hours instead: it does not run in hours that are skipped, and runs in both hours that are shown
// twice.
//
// A Cron is made by ParseCron.
type Cron struct {
	Fields string // as they were written, with one space between them
	Zone   string

	minutes, hours, days, months, weekdays set
	place                                  *time.Location // of Zone
	everyHour                              bool
	eitherDay                              bool // one of both day fields suffices: both name days
}

// ParseCron reads five fields, or a short form such as @daily, and a zone, UTC if there is none.
func ParseCron(text string) (Cron, error) {
	words := strings.Fields(text)
	if len(words) > 0 && strings.HasPrefix(words[0], "@") {
		return parseShort(words)
	}
	if len(words) != 5 && len(words) != 6 {
		return Cron{}, fmt.Errorf("%s is not five fields and a zone: write minute, hour, day of the month, month and day of the week, for instance \"15 3 * * mon-fri Europe/Berlin\"", yamldoc.Quote(text))
	}
	c, err := parseFields(words[:5])
	if err != nil {
		return Cron{}, err
	}
	return c.in(words[5:])
}

// shortForms are names for fields.
var shortForms = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

func parseShort(words []string) (Cron, error) {
	fields, known := shortForms[strings.ToLower(words[0])]
	if !known || len(words) > 2 {
		return Cron{}, fmt.Errorf("%s is no schedule: there are @hourly, @daily, @weekly, @monthly and @yearly, with a zone", yamldoc.Quote(strings.Join(words, " ")))
	}
	c, err := parseFields(strings.Fields(fields))
	if err != nil {
		return Cron{}, err
	}
	c.Fields = strings.ToLower(words[0])
	return c.in(words[1:])
}

// in gives it a zone, and refuses a day that never comes.
func (c Cron) in(zone []string) (Cron, error) {
	c.Zone = utc
	if len(zone) > 0 {
		c.Zone = zone[0]
	}
	var err error
	if c.place, err = expiry.LoadZone(c.Zone); err != nil {
		return Cron{}, err
	}
	if c.eitherDay {
		return c, nil
	}
	for month := 1; month <= 12; month++ {
		for d := 1; c.months.has(month) && d <= daysIn[month-1]; d++ {
			if c.days.has(d) {
				return c, nil
			}
		}
	}
	return Cron{}, errors.New("that day never comes: no month of it has that day")
}

var daysIn = [12]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// String writes it as the policy file does.
func (c Cron) String() string { return c.Fields + " " + c.Zone }

// MarshalText writes it into JSON as a text.
func (c Cron) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Cron) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCron(string(text))
	return err
}

// on reports whether it runs on a day.
func (c *Cron) on(d day) bool {
	month, date := d.date()
	inMonth, inWeek := c.days.has(date), c.weekdays.has(d.weekday())
	if c.eitherDay {
		return c.months.has(month) && (inMonth || inWeek)
	}
	return c.months.has(month) && inMonth && inWeek
}

// next returns the first run after t.
func (c *Cron) next(t time.Time) (time.Time, error) {
	zone := c.place
	never := fmt.Errorf("cron %s never comes", yamldoc.Quote(c.String()))
	if c.everyHour {
		return c.nextPassing(t, zone, never)
	}
	// Times that clocks have shown by t are past; in an hour that is shown again, so are later ones.
	for wall, ok := c.after(shown(t, zone)); ok; wall, ok = c.after(wall) {
		if at := firstShowing(wall, zone); at.After(t) {
			return at.UTC(), nil
		}
	}
	return time.Time{}, never
}

// nextPassing looks between two changes of the clocks, where they show elapsed hours.
func (c *Cron) nextPassing(t time.Time, zone *time.Location, never error) (time.Time, error) {
	for {
		wall, ok := c.after(shown(t, zone))
		if !ok {
			return time.Time{}, never
		}
		at := t.Add(wall.Sub(shown(t, zone)))
		_, change := t.In(zone).ZoneBounds()
		if change.IsZero() || at.Before(change) {
			return at.UTC(), nil
		}
		if first := shown(change, zone); c.on(dayOf(change, zone)) && c.at(first) {
			return change.UTC(), nil
		}
		t = change
	}
}

// at reports whether it runs at what a clock shows, whatever the day.
func (c *Cron) at(wall time.Time) bool {
	return wall.Second() == 0 && c.hours.has(wall.Hour()) && c.minutes.has(wall.Minute())
}

// longest is how many days may be between two runs: February 29 falls on one day of the week every 28 years, or every 40 across a century.
const longest = 41 * 366

// Apart is how many days may lie between one run and the next.
func (c *Cron) Apart() int {
	most, since := 1, 0
	d := dayOf(firstLook, time.UTC)
	for range 2 * longest { // contains the longest time without a run, whatever day it begins at
		since++
		if c.on(d) {
			most, since = max(most, since), 0
		}
		d = d.next()
	}
	return max(most, since)
}

// after returns the first time of day after wall, both as clocks show them, written in UTC.
func (c *Cron) after(wall time.Time) (time.Time, bool) {
	d := dayOf(wall, time.UTC)
	for range longest {
		for hour := 0; c.on(d) && hour < 24; hour++ {
			if !c.hours.has(hour) || !d.at(TimeOfDay(hour*60+59)).After(wall) {
				continue
			}
			for minute := range 60 {
				if at := d.at(TimeOfDay(hour*60 + minute)); c.minutes.has(minute) && at.After(wall) {
					return at, true
				}
			}
		}
		d = d.next()
	}
	return time.Time{}, false
}
