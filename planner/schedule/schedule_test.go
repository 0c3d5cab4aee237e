package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"lapse/planner/expiry"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestTheNextRunIsDue(t *testing.T) {
	t.Parallel()
	const never = "0001-01-01T00:00:00Z"
	for name, c := range map[string]struct {
		schedule          Schedule
		last, since, want string
	}{
		"every, never run: at once": {
			Schedule{Every: expiry.Interval{Microseconds: 3e8}}, never, "2025-05-01T10:00:00Z", "2025-05-01T10:00:00Z",
		},
		"every, from the last start": {
			Schedule{Every: expiry.Interval{Microseconds: 3e8}}, "2025-05-01T10:00:00Z", "2025-01-01T00:00:00Z", "2025-05-01T10:05:00Z",
		},
		"every month, from the 31st": {
			Schedule{Every: expiry.Interval{Months: 1}}, "2025-01-31T10:00:00Z", "2025-01-01T00:00:00Z", "2025-02-28T10:00:00Z",
		},
		"daily, never run: the next time": {
			Schedule{Daily: &Daily{3, 0, "Europe/Berlin"}}, never, "2025-05-01T10:00:00Z", "2025-05-02T01:00:00Z",
		},
		"daily, run on time": {
			Schedule{Daily: &Daily{3, 0, "Europe/Berlin"}}, "2025-05-02T01:00:02Z", "2025-01-01T00:00:00Z", "2025-05-03T01:00:00Z",
		},
		"daily, missed: due since then": {
			Schedule{Daily: &Daily{3, 0, "Europe/Berlin"}}, "2025-05-02T01:00:02Z", "2025-01-01T00:00:00Z", "2025-05-03T01:00:00Z",
		},
		"daily, made up for at noon": {
			Schedule{Daily: &Daily{3, 0, "Europe/Berlin"}}, "2025-05-05T10:00:00Z", "2025-01-01T00:00:00Z", "2025-05-06T01:00:00Z",
		},
		"daily in winter": {
			Schedule{Daily: &Daily{3, 0, "Europe/Berlin"}}, "2025-01-05T10:00:00Z", "2025-01-01T00:00:00Z", "2025-01-06T02:00:00Z",
		},
		"daily, clocks skip it: when they have": {
			Schedule{Daily: &Daily{2, 30, "Europe/Berlin"}}, "2025-03-29T10:00:00Z", "2025-01-01T00:00:00Z", "2025-03-30T01:00:00Z",
		},
		"daily, clocks show it twice: the first": {
			Schedule{Daily: &Daily{2, 30, "Europe/Berlin"}}, "2025-10-25T10:00:00Z", "2025-01-01T00:00:00Z", "2025-10-26T00:30:00Z",
		},
		"daily, clocks show it twice: once a day": {
			Schedule{Daily: &Daily{2, 30, "Europe/Berlin"}}, "2025-10-26T00:30:01Z", "2025-01-01T00:00:00Z", "2025-10-27T01:30:00Z",
		},
		"daily, a day that is skipped": {
			Schedule{Daily: &Daily{12, 0, "Pacific/Apia"}}, "2011-12-29T22:30:00Z", "2011-01-01T00:00:00Z", "2011-12-30T10:00:00Z",
		},
		"daily, midnight that is skipped": {
			Schedule{Daily: &Daily{0, 0, "America/Havana"}}, "2025-03-08T12:00:00Z", "2025-01-01T00:00:00Z", "2025-03-09T05:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.schedule.Next(instant(t, c.last), instant(t, c.since))
			if err != nil || !got.Equal(instant(t, c.want)) {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// A daily run comes once for each day of the calendar that has the time of day, at that time, whatever the clocks do.
func TestADailyRunComesOnceADay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := Daily{
			Hour: rapid.IntRange(0, 23).Draw(rt, "hour"), Minute: rapid.IntRange(0, 59).Draw(rt, "minute"),
			Zone: rapid.SampledFrom([]string{
				"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu", "Africa/Casablanca",
				"Pacific/Apia", "America/Scoresbysund", "Asia/Tehran", "Africa/Cairo",
			}).Draw(rt, "zone"),
		}
		zone, err := expiry.LoadZone(d.Zone)
		if err != nil {
			rt.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(rt, "start"), 0)
		var days []string
		for range 400 {
			next, err := Schedule{Daily: &d}.Next(at, time.Time{})
			if err != nil {
				rt.Fatal(err)
			}
			if !next.After(at) {
				rt.Fatalf("%s: after %s comes %s", d, at, next)
			}
			if gap := next.Sub(at); len(days) > 0 && gap > 25*time.Hour+30*time.Minute && d.Zone != "Pacific/Apia" {
				rt.Fatalf("%s: %s from %s to %s", d, gap, at, next)
			}
			shown := next.In(zone)
			if shown.Hour() != d.Hour || shown.Minute() != d.Minute {
				// Only at the end of a skip.
				before := next.Add(-time.Second).In(zone)
				_, was := before.Zone()
				if _, is := shown.Zone(); is <= was {
					rt.Fatalf("%s: runs at %s", d, shown)
				}
			} else {
				days = append(days, shown.Format(time.DateOnly))
			}
			at = next
		}
		for i := 1; i < len(days); i++ {
			if days[i] <= days[i-1] {
				rt.Fatalf("%s: %s is followed by %s", d, days[i-1], days[i])
			}
		}
	})
}

func TestAMonthIsCountedAsPostgresCounts(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"2024-01-31T12:00:00Z": "2024-02-29T12:00:00Z", "2023-01-29T00:00:01Z": "2023-02-28T00:00:01Z",
		"2023-12-31T23:59:59Z": "2024-01-31T23:59:59Z", "2023-03-15T00:00:00Z": "2023-04-15T00:00:00Z",
	} {
		if got := (expiry.Interval{Months: 1}).After(instant(t, from)); !got.Equal(instant(t, want)) {
			t.Errorf("%s + 1 month is %s, want %s", from, got, want)
		}
	}
}

func TestHowManyDaysLieBetweenTwoRunsOfACron(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"* * * * *": 1, "15 3 * * *": 1, "@hourly": 1, "15 3 * * mon-fri": 3, "@weekly": 7, "@monthly": 31, "0 3 31 * *": 61, "0 3 1 */3 *": 92,
		"@yearly": 366, "0 0 29 2 *": 8*365 + 1, "0 3 1 * mon": 7,
	} {
		c, err := ParseCron(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Apart(); got != want {
			t.Errorf("%s: %d days, want %d", text, got, want)
		}
	}
}
