package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// With ordinary names, policies of 20 characters and tables of 25, a table fits 80 columns. What has no room is in a second table that
// --verbose prints, in a sentence below, or only in --json. Longer names are cut on a terminal. In a pipe they stay whole, because programs
// read them. Numbers, times and sentences are never cut: sentences say what to type next.

// table formats the results of several commands. Each cell is on one line, whatever it contains.
type table struct {
	columns []string
	cuts    []bool // the column holds text, which may be cut
	rows    [][]string
}

// newTable makes a table. A column whose name ends with … may be cut.
func newTable(columns ...string) *table {
	t := &table{}
	for _, name := range columns {
		name, cuts := strings.CutSuffix(name, "…")
		t.columns, t.cuts = append(t.columns, name), append(t.cuts, cuts)
	}
	return t
}

// row adds a row with a cell for each column.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = onOneLine(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, row)
}

// leastCut is the smallest width to which a column is cut, and columnGap the gap between two columns.
const (
	leastCut  = 8
	columnGap = 2
)

// write prints the table. If cutting helps, it is not wider than width; 0 is unlimited.
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

// widths returns the columns' widths: those of the widest cells, reduced for text columns while the table is too wide.
func (t *table) widths(width int) []int {
	widths, all := make([]int, len(t.columns)), -columnGap
	for i := range t.columns {
		for _, row := range append([][]string{t.columns}, t.rows...) {
			widths[i] = max(widths[i], columnsOf(row[i]))
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

// cutTo cuts out the middle of a long text, because names often differ at their ends.
func cutTo(text string, width int) string {
	if columnsOf(text) <= width {
		return text
	}
	runes := []rune(text)
	head, tail := 0, len(runes)
	for n := width / 2; head < len(runes) && n >= columnsOf(string(runes[head])); head++ {
		n -= columnsOf(string(runes[head]))
	}
	for n := width - width/2 - 1; tail > head && n >= columnsOf(string(runes[tail-1])); tail-- {
		n -= columnsOf(string(runes[tail-1]))
	}
	return string(slices.Concat(runes[:head], []rune{'…'}, runes[tail:]))
}

func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(width-columnsOf(text), 0))
}

// columnsOf is how many columns of a terminal a text takes: two for a character of East Asia, none for a combining accent.
func columnsOf(text string) (n int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// printTable prints a table, cut to the width of a terminal.
func (a *app) printTable(t *table) error { return t.write(a.out, a.terminalWidth()) }

// terminalWidth is the terminal's width, or 0 if results do not go to a terminal.
func (a *app) terminalWidth() int {
	if a.width == nil {
		return 0
	}
	return a.width()
}
