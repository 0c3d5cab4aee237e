package yamldoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one thing that is wrong in a file, or between it and the database.
type Error struct {
	File    string
	Place   Place // zero for what concerns no place in the file: that it cannot be opened
	Policy  string
	Message string
	Line    string // the text of the line, "" where it is not to be shown
	Cause   error  // what Message is the text of, nil for none
}

// Error says file, line, column and what is wrong.
func (e *Error) Error() string {
	if e.Place == (Place{}) {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Place.Line, e.Place.Column, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// shownWidth is how much of a line is shown, and shownBefore how much of that before the place.
const (
	shownWidth  = 100
	shownBefore = 60
)

// Excerpt is the line with a caret under the place, "" where there is nothing to show.
func (e *Error) Excerpt() string {
	if strings.TrimSpace(e.Line) == "" {
		return ""
	}
	line := []rune(e.Line)
	for i, r := range line {
		if !unicode.IsPrint(r) { // a tab too, so that the caret is where it should be
			line[i] = ' '
		}
	}
	caret := min(e.Place.Column-1, len(line))
	before, after := "", ""
	if from := caret - shownBefore; from > 0 && len(line) > shownWidth {
		line, caret, before = line[from:], shownBefore+1, "…"
	}
	if len(line) > shownWidth {
		line, after = line[:shownWidth], "…"
	}
	return fmt.Sprintf("  | %s%s%s\n  | %s^", before, strings.TrimRight(string(line), " "), after, strings.Repeat(" ", caret))
}

// Errors are all the things that are wrong in a file, in its order.
type Errors []*Error

// Error has one line for each, and below it the line that it is about.
func (e Errors) Error() string {
	lines := make([]string, 0, len(e))
	for _, one := range e {
		lines = append(lines, one.Error())
		if excerpt := one.Excerpt(); excerpt != "" {
			lines = append(lines, excerpt)
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find an Error.
func (e Errors) Unwrap() []error {
	all := make([]error, 0, len(e))
	for _, one := range e {
		all = append(all, one)
	}
	return all
}

// Sorted are the errors in the order of their places, file by file in the order given.
func (e Errors) Sorted(files []string) Errors {
	all := slices.Clone(e)
	slices.SortStableFunc(all, func(a, b *Error) int {
		return cmp.Or(slices.Index(files, a.File)-slices.Index(files, b.File), a.Place.Line-b.Place.Line, a.Place.Column-b.Place.Column)
	})
	return all
}
