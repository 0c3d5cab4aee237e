package expiry

import (
	"testing"
	"time"
)

func TestMonthsHaveAtLeastAndAtMostSoManyDays(t *testing.T) {
	t.Parallel()
	days := func(months int32, from time.Time) int64 {
		return (Interval{Months: months}.After(from).Unix() - from.Unix()) / (24 * 3600)
	}
	for months := int32(0); months <= 12*13; months++ {
		least, most := daysOf(months)
		for from := time.Date(1895, 1, 1, 0, 0, 0, 0, time.UTC); from.Year() < 1913; from = from.AddDate(0, 0, 1) {
			if n := days(months, from); n < least || n > most {
				t.Fatalf("%d months from %s are %d days, and not %d to %d", months, from, n, least, most)
			}
		}
	}
	for _, months := range []int32{12 * 100, 12*100 + 1, 12 * 400, 12*399 + 11} {
		least, most := daysOf(months)
		for year := 1800; year < 2200; year++ {
			if n := days(months, time.Date(year, 2, 28, 0, 0, 0, 0, time.UTC)); n < least || n > most {
				t.Fatalf("%d months from %d are %d days, and not %d to %d", months, year, n, least, most)
			}
		}
	}
}

func TestATimeIsCertainlyAsLongAsAnother(t *testing.T) {
	t.Parallel()
	year, month, day := Interval{Months: 12}, Interval{Months: 1}, Interval{Days: 1}
	days := func(n int32) Interval { return Interval{Days: n} }
	for _, c := range []struct {
		i, least Interval
		want     bool
	}{
		{days(90), days(90), true},
		{days(89), days(90), false},
		{Interval{Microseconds: 90 * 24 * time.Hour.Microseconds()}, days(90), true},
		{Interval{Months: 3}, days(90), false}, // from February, 89
		{Interval{Months: 3}, days(89), true},
		{Interval{Months: 84}, days(90), true},
		{days(3650), Interval{Months: 120}, false},
		{days(3655), Interval{Months: 120}, true},
		{days(31), month, true},
		{days(30), month, false},
		{month, days(29), false},
		{year, Interval{Months: 11, Days: 30}, false},
		{Interval{Months: 1, Days: 3}, days(31), true},
		{day, Interval{}, true},
	} {
		if got := c.i.AtLeast(c.least); got != c.want {
			t.Errorf("%s is certainly as long as %s: %t, want %t", c.i, c.least, got, c.want)
		}
	}
}

// A kind that is not named here is not judged, which refuses it under a floor.
func TestTheLeastTimeOfAKindIsCountedFromWhatTheRowSays(t *testing.T) {
	t.Parallel()
	after := Interval{Days: 90}
	for _, c := range []struct {
		counted, alone Kind
	}{
		{&Age{After: after}, &Age{}},
		{&Epoch{After: after}, &Epoch{}},
		{&ISO8601{After: after}, &ISO8601{}},
		{&NumberOrText{After: after}, &NumberOrText{}},
		{&Bucket{Span: Interval{Days: 1}, After: after}, &Bucket{Span: Interval{Days: 1}}},
		{&Sidecar{After: after}, &Sidecar{}},
	} {
		if least, judged := LeastOf(c.counted); least != after || !judged {
			t.Errorf("%T: %s, %t, want 90 days", c.counted, least, judged)
		}
		if least, judged := LeastOf(c.alone); judged {
			t.Errorf("%T without after: %s, want that the row itself says when", c.alone, least)
		}
	}
	for _, own := range []Kind{&TTL{Default: &after}, &Expression{}} {
		if least, judged := LeastOf(own); judged {
			t.Errorf("%T: %s, want that the row itself says when", own, least)
		}
	}
}
