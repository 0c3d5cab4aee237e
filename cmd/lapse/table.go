package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A table fits a terminal of 80 columns with ordinary names: policies of 20 characters, tables of 25. What that leaves no room for is in
// another table, which --verbose asks for, in a sentence below, or in --json alone. Where names are longer they are cut for a terminal, and
// whole for a pipe: programs read them there. Numbers and times are never cut, nor are sentences: they say what to type next.

// table is what several commands print. Each cell is on one line, whatever is in it.
type table struct {
	columns []string
	cuts    []bool // the column holds text, which may be cut
	rows    [][]string
}

// newTable begins a table. A column whose name ends with … may be cut.
func newTable(columns ...string) *table {
	t := &table{}
	for _, name := range columns {
		name, cuts := strings.CutSuffix(name, "…")
		t.columns, t.cuts = append(t.columns, name), append(t.cuts, cuts)
	}
	return t
}

// row adds a row: a cell for each column.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = onOneLine(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, row)
}

// leastCut is how wide a column stays at least that is cut, and columnGap what is between two.
const (
	leastCut  = 8
	columnGap = 2
)

// write prints the table, not wider than width where cutting helps; 0 is any width.
func (t *table) write(to io.Writer, width int) error {
	widths := t.widths(width)
	var b strings.Builder
	for _, row := range append([][]string{t.columns}, t.rows...) {
		line := ""
		for i, cell := range row {
			line += padded(cutTo(cell, widths[i]), widths[i]+columnGap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// widths are those of the columns: of the widest cell, and less for text as long as the table is too wide.
func (t *table) widths(width int) []int {
	widths, all := make([]int, len(t.columns)), -columnGap
	for i := range t.columns {
		for _, row := range append([][]string{t.columns}, t.rows...) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		all += widths[i] + columnGap
	}
	for width > 0 && all > width {
		widest := -1
		for i, cuts := range t.cuts {
			if cuts && widths[i] > leastCut && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		all--
	}
	return widths
}

// cutTo takes out the middle of a text that is too long: names often differ at their ends.
func cutTo(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := width / 2
	return string(slices.Concat(runes[:head], []rune{'…'}, runes[len(runes)-(width-head-1):]))
}

func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

// printTable prints a table: cut to a terminal's width, whole elsewhere.
func (a *app) printTable(t *table) error { return t.write(a.out, a.terminalWidth()) }

// terminalWidth is 0 where results do not go to a terminal.
func (a *app) terminalWidth() int {
	if a.width == nil {
		return 0
	}
	return a.width()
}
