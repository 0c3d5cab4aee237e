package page

import (
	"strconv"
	"strings"
)

// mostDays is the largest number of rows in a table of days: longer tables get a row for each month. A CSV has every day.
const mostDays = 100

// byMonth makes a table of days, with rows for months if there are many days, and totals at the end. The day is in the first column, or in the one
// after the table's name.
func (t Table) byMonth(totals ...Row) Table {
	if t.All = t.Rows; len(t.Rows) > mostDays {
		t.Caption = strings.Replace(t.Caption, "day", "month", 1) + "; each day is in the CSV and the JSON"
		t.Rows = months(t.Rows)
	}
	t.Rows = append(t.Rows[:len(t.Rows):len(t.Rows)], totals...)
	return t
}

// months joins consecutive rows of one month that have the same cells before the day.
func months(days []Row) (out []Row) {
	first := 0
	for i := range days {
		if i+1 < len(days) && sameMonth(days[i].Cells, days[i+1].Cells) {
			continue
		}
		out = append(out, sumOfRows(days[first:i+1]))
		first = i + 1
	}
	return out
}

// dayOf is the index of a row's day.
func dayOf(cells []Cell) int {
	if cells[0].Whole {
		return 0
	}
	return 1
}

const monthLong = len("2026-10")

func sameMonth(a, b []Cell) bool {
	day := dayOf(a)
	return (day == 0 || a[0].From == b[0].From) && strings.HasPrefix(b[day].Text, a[day].Text[:monthLong])
}

// sumOfRows adds up rows. Its cells name the range of places that they sum up.
func sumOfRows(all []Row) Row {
	first, last := all[0].Cells, all[len(all)-1].Cells
	day := dayOf(first)
	out := Row{Cells: append([]Cell{}, first[:day+1]...)}
	out.Cells[day] = Cell{Text: first[day].Text[:monthLong], Whole: true}
	for i := day + 1; i < len(first); i++ {
		var sum int64
		for _, row := range all {
			n, _ := strconv.ParseInt(row.Cells[i].Raw, 10, 64)
			sum += n
		}
		out.Cells = append(out.Cells, count(sum, placesTo(first[i].From, last[i].From)))
	}
	return out
}

// placesTo is the range between two places in one list.
func placesTo(first, last string) place {
	a, b := strings.Split(first, "/"), strings.Split(last, "/")
	for i := range a {
		if a[i] != b[i] {
			a[i] += "-" + b[i]
		}
	}
	return place(strings.Join(a, "/"))
}
