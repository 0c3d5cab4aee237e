package page

import (
	"fmt"
	"strings"
	"time"

	"lapse/internal/plaintext"
)

// chart shows deletions by day, one bar a day.
type chart struct {
	Label         string // the picture's text for screen readers
	Width, Height int
	Bars          []bar
	First, Last   string
	Most          string
	Months        []month
	Uncounted     int
}

// bar is a day with deletions, or a day that is not counted.
type bar struct {
	X, Y, Height int
	Title        string
	Unknown      bool
}

// month is a row of the table with the same numbers.
type month struct {
	Name string
	Rows string
}

// The picture's units: a day is two units wide, with one unit between days.
const (
	dayStep    = 3
	dayWidth   = 2
	yearHeight = 60
	// sparkDays is the number of days in the small pictures in the table of policies.
	sparkDays   = 30
	sparkHeight = 18
)

// yearChart draws a year. what names what was deleted: a policy's rows, or all.
func yearChart(first time.Time, days []int64, uncounted []bool, what string) *chart {
	c := &chart{Width: daysShown*dayStep - 1, Height: yearHeight, First: dated(first), Last: dated(first.AddDate(0, 0, daysShown-1))}
	most, mostAt, sum := int64(0), 0, int64(0)
	for i, n := range days {
		sum += n
		if n > most {
			most, mostAt = n, i
		}
	}
	var months []month
	rows := int64(0)
	for i := range daysShown {
		at := first.AddDate(0, 0, i)
		n := int64(0)
		if i < len(days) {
			n = days[i]
		}
		switch {
		case uncounted[i]:
			c.Uncounted++
			c.Bars = append(c.Bars, bar{X: i * dayStep, Y: 0, Height: yearHeight, Title: dated(at) + ": not counted", Unknown: true})
		case n > 0:
			height := scaled(n, most, yearHeight)
			c.Bars = append(c.Bars, bar{X: i * dayStep, Y: yearHeight - height, Height: height, Title: dated(at) + ": " + rowsText(n)})
		}
		rows += n
		if i == daysShown-1 || at.AddDate(0, 0, 1).Day() == 1 {
			months = append(months, month{at.Format("January 2006"), plaintext.Number(rows)})
			rows = 0
		}
	}
	c.Months = months
	c.Label = fmt.Sprintf("%s by day in a year: %s", what, rowsText(sum))
	if most > 0 {
		c.Most = fmt.Sprintf("most on one day: %s, on %s", rowsText(most), dated(first.AddDate(0, 0, mostAt)))
		c.Label += ", " + c.Most
	}
	return c
}

// scaled is a bar's height. A bar that is not empty is visible.
func scaled(n, most int64, height int) int {
	return max(2, int(float64(n)/float64(most)*float64(height)))
}

// spark draws the last days as one path; "" if nothing was deleted.
type spark struct {
	Path, Label   string
	Width, Height int
}

func sparkOf(days []int64) *spark {
	if len(days) > sparkDays {
		days = days[len(days)-sparkDays:]
	}
	most, sum := int64(0), int64(0)
	for _, n := range days {
		most, sum = max(most, n), sum+n
	}
	s := &spark{Width: sparkDays*dayStep - 1, Height: sparkHeight, Label: rowsText(sum)}
	var path strings.Builder
	for i, n := range days {
		if n > 0 {
			fmt.Fprintf(&path, "M%d %dh%dv-%dh-%dz", i*dayStep, sparkHeight, dayWidth, scaled(n, most, sparkHeight), dayWidth)
		}
	}
	s.Path = path.String()
	return s
}

func dated(t time.Time) string { return t.Format(time.DateOnly) }

func rowsText(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return plaintext.Number(n) + " rows"
}
