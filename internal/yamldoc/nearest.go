package yamldoc

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the name that name was most likely meant to be, "" where more than half
// of its letters would have to change.
func Nearest(name string, names []string) string {
	best, least := "", len(name)/2+1
	for _, candidate := range names {
		if n := distance(strings.ToLower(name), strings.ToLower(candidate)); n < least {
			best, least = candidate, n
		}
	}
	return best
}

// distance is the number of letters to add, drop, change or swap with a neighbour.
func distance(a, b string) int {
	if len(a) > 100 {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		earlier := before
		before, row = row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := before[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, before[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], earlier[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// Suggestion is the end of a complaint about a name that is not there: the nearest of valid and later, or all that are
// valid.
func Suggestion(name string, valid, later []string) string {
	if near := Nearest(name, slices.Concat(valid, later)); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; there are " + strings.Join(valid, ", ")
}

// Quote shows a text from a file, cut where it goes on and on.
func Quote(s string) string {
	if runes := []rune(s); len(runes) > 40 {
		s = string(runes[:40]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
