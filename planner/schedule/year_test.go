package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/planner/expiry"
)

// A year of minutes with every change of clocks that is out of the ordinary: half an hour, at midnight, a day that is left
// out, four changes in a year, and back over midnight.
var years = []struct {
	zone string
	from int
}{
	{"Europe/Berlin", 2025},
	{"Australia/Lord_Howe", 2025},
	{"Pacific/Apia", 2011},
	{"America/Havana", 2025},
	{"Africa/Casablanca", 2025},
	{"America/Goose_Bay", 2010},
	{"Asia/Beirut", 2025},
	{"Asia/Kathmandu", 2025},
	{"America/Scoresbysund", 2024},
}

// clock is what a clock shows.
type clock struct {
	month, day   int
	weekday      time.Weekday
	hour, minute int
	days         int64 // since 1970
}

func clockOf(t time.Time) clock {
	return clock{int(t.Month()), t.Day(), t.Weekday(), t.Hour(), t.Minute(), t.Unix() / 86400}
}

// minute is an instant, what clocks show at it, and the times of day that they show, or have skipped, for the first time.
type minute struct {
	at    time.Time
	shown clock
	fresh []clock
}

// minutes are those of a year, with a day before it in which nothing counts.
func minutes(t *testing.T, zone string, year int) []minute {
	t.Helper()
	location, err := expiry.LoadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []minute
	var highest time.Time
	for range 366 * 24 * 60 {
		local := at.In(location)
		shown := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		m := minute{at: at, shown: clockOf(shown)}
		if highest.IsZero() {
			highest = shown.Add(-time.Minute)
		}
		for highest.Before(shown) {
			highest = highest.Add(time.Minute)
			m.fresh = append(m.fresh, clockOf(highest))
		}
		all = append(all, m)
		at = at.Add(time.Minute)
	}
	return all
}

// crons are schedules, and the same in Go.
var crons = []struct {
	fields    string
	everyHour bool
	runs      func(c clock) bool
}{
	{"0 3 * * *", false, func(c clock) bool { return c.hour == 3 && c.minute == 0 }},
	{"30 2 * * *", false, func(c clock) bool { return c.hour == 2 && c.minute == 30 }},
	{"0,45 0-2,23 * * *", false, func(c clock) bool { return (c.hour < 3 || c.hour == 23) && c.minute%45 == 0 }},
	{"*/15 1-2 * * *", false, func(c clock) bool { return (c.hour == 1 || c.hour == 2) && c.minute%15 == 0 }},
	{"7 */2 * * *", true, func(c clock) bool { return c.hour%2 == 0 && c.minute == 7 }},
	{"*/20 * * * *", true, func(c clock) bool { return c.minute%20 == 0 }},
	{"* * 1 * *", true, func(c clock) bool { return c.day == 1 }},
	{"15 3 * * mon-fri", false, func(c clock) bool {
		return c.hour == 3 && c.minute == 15 && c.weekday >= time.Monday && c.weekday <= time.Friday
	}},
	{"0 12 13 * fri", false, func(c clock) bool {
		return c.hour == 12 && c.minute == 0 && (c.day == 13 || c.weekday == time.Friday)
	}},
	{"0 0 */10 feb,JUN-aug sat-sun", false, func(c clock) bool {
		return c.hour == 0 && c.minute == 0 && (c.month == 2 || c.month >= 6 && c.month <= 8) && c.day%10 == 1 &&
			(c.weekday == time.Saturday || c.weekday == time.Sunday)
	}},
	{"0 0 29-31 * *", false, func(c clock) bool { return c.hour == 0 && c.minute == 0 && c.day >= 29 }},
	{"@monthly", false, func(c clock) bool { return c.hour == 0 && c.minute == 0 && c.day == 1 }},
	{"@hourly", true, func(c clock) bool { return c.minute == 0 }},
}

// What is promised of daily, cron and windows, as somebody sees it who watches a clock for a year.
//
// A cron runs in the minutes in which clocks show its times of day for the first time, or have skipped them; a cron of every
// hour in all minutes in which they show them. A daily run is a cron of one time of day. A window is open from the
// minute in which clocks show its first time of day, or more, to the one in which they show its second, or more, once for each
// day of the calendar.
//
//lapse:long
func TestASchedulesYearIsThatOfAClockThatIsWatched(t *testing.T) {
	t.Parallel()
	for _, y := range years {
		t.Run(y.zone, func(t *testing.T) {
			t.Parallel()
			all := minutes(t, y.zone, y.from)
			for _, c := range crons {
				cron, err := ParseCron(c.fields + " " + y.zone)
				if err != nil {
					t.Fatal(err)
				}
				var want []time.Time
				for _, m := range all[1:] {
					runs := c.everyHour && c.runs(m.shown)
					for _, fresh := range m.fresh {
						runs = runs || !c.everyHour && c.runs(fresh)
					}
					if runs {
						want = append(want, m.at)
					}
				}
				compare(t, cron.String(), Schedule{Cron: &cron}, all, want)
			}
			for _, d := range []Daily{{0, 0, y.zone}, {2, 30, y.zone}, {23, 59, y.zone}} {
				var want []time.Time
				for _, m := range all[1:] {
					for _, fresh := range m.fresh {
						if fresh.hour == d.Hour && fresh.minute == d.Minute && !slices.Contains(want, m.at) {
							want = append(want, m.at)
						}
					}
				}
				compare(t, d.String(), Schedule{Daily: &d}, all, want)
			}
			for _, text := range []string{"22:00-06:00", "02:10-02:50", "00:00-01:00", "09:00-17:00", "23:30-00:30", "02:10-02:00", "06:00-24:00"} {
				w, err := ParseWindow(text + " " + y.zone)
				if err != nil {
					t.Fatal(err)
				}
				watch(t, w, all)
			}
		})
	}
}

// compare walks through the year from run to run.
func compare(t *testing.T, name string, s Schedule, all []minute, want []time.Time) {
	t.Helper()
	at, end := all[0].at, all[len(all)-1].at
	for i := 0; ; i++ {
		next, err := s.Next(at, time.Time{})
		switch {
		case err != nil:
			t.Fatal(err)
		case i == len(want) && next.After(end):
			return
		case i == len(want) || !next.Equal(want[i]):
			t.Errorf("%s: after %s comes %s, want %v", name, at, next, append(want, end)[i])
			return
		}
		at = next
		if i%3 == 1 { // a run does not begin at the very instant
			at = at.Add(20 * time.Second)
		}
	}
}

func watch(t *testing.T, w Window, all []minute) {
	t.Helper()
	opened := map[int64]bool{} // by day of opening
	open := make([]bool, len(all))
	for i, m := range all {
		for _, fresh := range m.fresh {
			clock := TimeOfDay(fresh.hour*60 + fresh.minute)
			if clock == w.From {
				opened[fresh.days] = true
			}
			if clock == w.To%endOfDay {
				last := fresh.days
				if w.To <= w.From || w.To == endOfDay {
					last--
				}
				delete(opened, last)
			}
		}
		open[i] = len(opened) > 0
	}
	change := time.Time{} // of the minutes after, the first in which it is otherwise
	const margin = 2 * 24 * 60
	for i := len(all) - 1; i > margin; i-- {
		if i < len(all)-1 && open[i] != open[i+1] {
			change = all[i+1].at
		}
		if change.IsZero() || i%97 != 0 && open[i] == open[i-1] {
			continue
		}
		is, until, err := w.Open(all[i].at)
		if err != nil || is != open[i] || !until.Equal(change) {
			t.Errorf("%s: at %s it is %t until %s, %v; want %t until %s", w, all[i].at, is, until, err, open[i], change)
			return
		}
	}
}

func TestARunOutsideTheWindowWaitsForItToOpen(t *testing.T) {
	t.Parallel()
	window := Window{From: 22 * 60, To: 6 * 60, Zone: "Europe/Berlin"}
	daily, nightly := Daily{Hour: 12, Zone: "Europe/Berlin"}, Daily{Hour: 3, Zone: "Europe/Berlin"}
	for name, c := range map[string]struct {
		schedule          Schedule
		last, since, want string
	}{
		"every, never run":               {Schedule{Every: expiry.Interval{Microseconds: 3e8}}, "0001-01-01T00:00:00Z", "2025-05-01T10:00:00Z", "2025-05-01T20:00:00Z"},
		"every, within it":               {Schedule{Every: expiry.Interval{Microseconds: 3e8}}, "2025-05-01T20:00:00Z", "2025-05-01T10:00:00Z", "2025-05-01T20:05:00Z"},
		"every, it closes before":        {Schedule{Every: expiry.Interval{Microseconds: 3e8}}, "2025-05-02T03:58:00Z", "2025-05-01T10:00:00Z", "2025-05-02T20:00:00Z"},
		"every 100 ms, as it closes":     {Schedule{Every: expiry.Interval{Microseconds: 1e5}}, "2025-05-02T03:59:59.95Z", "2025-05-01T10:00:00Z", "2025-05-02T20:00:00Z"},
		"daily, outside: as it opens":    {Schedule{Daily: &daily}, "2025-05-01T20:00:00Z", "2025-05-01T10:00:00Z", "2025-05-02T20:00:00Z"},
		"daily, within it: at that time": {Schedule{Daily: &nightly}, "2025-05-01T20:00:00Z", "2025-05-01T10:00:00Z", "2025-05-02T01:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.schedule.Window = &window
			got, err := c.schedule.Next(instant(t, c.last), instant(t, c.since))
			if err != nil || !got.Equal(instant(t, c.want)) {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestAWindowThatIsNeverOpenWhenARunBeginsIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, window string
		never        bool
	}{
		{"0 12 * * * Europe/Berlin", "22:00-06:00 Europe/Berlin", true},
		{"0 3 * * * Europe/Berlin", "22:00-06:00 Europe/Berlin", false},
		{"0 6 * * * Europe/Berlin", "22:00-06:00 Europe/Berlin", true},
		{"59 5 * * * Europe/Berlin", "22:00-06:00 Europe/Berlin", false},
		{"*/10 9-17 * * * Europe/Berlin", "22:00-06:00 Europe/Berlin", true},
		{"*/10 * * * * Europe/Berlin", "03:01-03:09 Europe/Berlin", true},
		{"*/10 * * * * Europe/Berlin", "03:01-03:11 Europe/Berlin", false},
		{"0 12 * * * America/New_York", "17:30-18:30 Europe/Berlin", false},
		{"0 12 * * * America/New_York", "16:30-17:30 Europe/Berlin", false}, // for three weeks in spring
		{"0 12 * * * America/New_York", "15:30-16:30 Europe/Berlin", true},
		{"0 3 29 2 *", "02:00-04:00", false},
		{"0 5 29 2 *", "02:00-04:00", true},
		{"30 2 * * * Europe/Berlin", "03:00-03:10 Europe/Berlin", false}, // once a year, as clocks skip it
	} {
		cron, err := ParseCron(c.when)
		if err != nil {
			t.Fatal(err)
		}
		window, err := ParseWindow(c.window)
		if err != nil {
			t.Fatal(err)
		}
		if never, err := (Schedule{Cron: &cron, Window: &window}).NeverOpen(); never != c.never || err != nil {
			t.Errorf("%s in %s: never %t, %v", c.when, c.window, never, err)
		}
	}
}

func TestAScheduleThatSaysNothingIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "is not five fields and a zone",
		"0 3 * *":             "is not five fields and a zone",
		"0 3 * * * UTC UTC":   "is not five fields and a zone",
		"60 3 * * *":          `minute: "60" is not a number from 0 to 59`,
		"0 24 * * *":          `hour: "24" is not a number from 0 to 23`,
		"0 3 0 * *":           `day of the month: "0" is not a number from 1 to 31`,
		"0 3 * 13 *":          `month: "13" is not a number from 1 to 12`,
		"0 3 * * 8":           `day of the week: "8" is not a number from 0 to 7`,
		"0 3 * jam *":         "did you mean jan?",
		"0 3 * * fir":         "did you mean fri?",
		"-5 3 * * *":          `minute: "" is not a number`,
		"+5 3 * * *":          `minute: "+5" is not a number`,
		"005 3 * * *":         `minute: "005" is not a number`,
		"0, 3 * * *":          `minute: "" is not a number`,
		"0,1 3 * *":           "is not five fields",
		"0,,1 3 * * *":        `minute: "" is not a number`,
		"0-5-9 3 * * *":       `minute: "5-9" is not a number`,
		"*/0 3 * * *":         `the step in "*/0" must be a number from 1 to 59`,
		"*/ 3 * * *":          `the step in "*/" must be`,
		"*/x 3 * * *":         `the step in "*/x"`,
		"*/2/3 3 * * *":       `the step in "*/2/3"`,
		"5/15 3 * * *":        `write 5-59/15`,
		"30-10 3 * * *":       `"30-10" goes backwards`,
		"0 3 * * fri-mon":     `"fri-mon" goes backwards`,
		"? 3 * * *":           `minute: "?" is not a number`,
		"0 3 30 2 *":          "that day never comes",
		"0 3 31 4,jun,9,11 *": "that day never comes",
		"0 3 * * * CET":       `"CET" is not the name of a place`,
		"0 3 * * * Mars/Dust": `there is no time zone "Mars/Dust"`,
		"@reboot":             "there are @hourly, @daily",
		"@daily UTC UTC":      "there are @hourly, @daily",
	} {
		if _, err := ParseCron(text); err == nil || !contains(err, want) {
			t.Errorf("cron %q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is not two times of day", "22:00": "is not two times of day", "22:00-6:00": "is not two times of day", "22-06": "is not two times of day",
		"24:00-06:00": "is not two times of day", "22:00-24:01": "is not two times of day", "22:00 - 06:00": "is not two times of day",
		"06:00-06:00": "leave it out", "00:00-24:00": "leave it out", "22:00-06:00 CET": "is not the name of a place", "22:00-06:00 UTC ": "is not two times of day",
	} {
		if _, err := ParseWindow(text); err == nil || !contains(err, want) {
			t.Errorf("window %q: %v, want %q", text, err, want)
		}
	}
}

// What is on record says the same when it is read back.
func TestAScheduleOnRecordIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"15  3 * * MON-fri Europe/Berlin", "@Daily", "@weekly Asia/Tokyo", "*/5 0-6,22,23 1,15 * sun,2-4/2"} {
		c, err := ParseCron(text)
		if err != nil {
			t.Fatal(err)
		}
		var back Cron
		if err := back.UnmarshalText([]byte(c.String())); err != nil || back.String() != c.String() || back.minutes != c.minutes || back.weekdays != c.weekdays {
			t.Errorf("%s: %+v, %v, want %+v", text, back, err, c)
		}
	}
	for _, text := range []string{"22:00-06:00 Europe/Berlin", "00:00-23:59", "06:00-24:00 UTC"} {
		w, err := ParseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		var back Window
		if err := back.UnmarshalText([]byte(w.String())); err != nil || back.String() != w.String() {
			t.Errorf("%s: %+v, %v, want %+v", text, back, err, w)
		}
	}
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// No text makes a cron panic, and what is taken has a next run that comes later.
func FuzzParseCron(f *testing.F) {
	for _, text := range []string{"*/5 0-6,22 1,15 * sun,2-4/2 Asia/Tokyo", "0 0 29 2 */7", "@daily", "0 3 31 feb *", "* * * * * Pacific/Apia"} {
		f.Add(text, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		c, err := ParseCron(text)
		if err != nil {
			return
		}
		at := time.Unix(seconds%4_000_000_000, 0)
		next, err := c.next(at)
		if err != nil || !next.After(at) {
			t.Errorf("%q: after %s comes %s, %v", text, at, next, err)
		}
		if back, err := ParseCron(c.String()); err != nil || back.String() != c.String() {
			t.Errorf("%q is read back as %s, %v", text, back, err)
		}
	})
}
