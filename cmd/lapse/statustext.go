package main

import (
	"fmt"
	"strings"

	"lapse/internal/status"
)

// clearScreen clears a terminal and moves the cursor to its first line.
const clearScreen = "\x1b[H\x1b[2J"

func (a *app) showStatus(s *status.Status) error {
	if a.asJSON {
		return a.printJSON(s)
	}
	text, err := statusText(s, a.terminalWidth(), a.verbose)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

// statusText makes the screen: the state of the whole database, a line for each policy and, below, notes. It shows text that logins wrote
// on one line, without control characters, so that such a text cannot fake lines.
func statusText(s *status.Status, width int, verbose bool) (string, error) {
	var b strings.Builder
	for _, text := range s.Whole() {
		fmt.Fprintln(&b, onOneLine(text))
	}
	fmt.Fprintln(&b, "audit: "+s.Audit.Text(s.At))
	if s.Witnesses != "" {
		fmt.Fprintln(&b, "witnesses: "+onOneLine(s.Witnesses))
	}
	fmt.Fprintln(&b, "executors: "+onOneLine(s.ExecutorsText()))
	if holds := s.HoldsText(); holds != "" {
		fmt.Fprintln(&b, "holds: "+onOneLine(holds))
	}
	if len(s.Policies) == 0 {
		fmt.Fprintln(&b, "no policy is in force: lapse apply -f FILE adds some")
		return b.String(), nil
	}
	if err := statusTable(s, verbose).write(&b, width); err != nil {
		return "", err
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		for _, note := range p.Remarks() {
			fmt.Fprintf(&b, "%s: %s\n", p.Policy, onOneLine(note))
		}
	}
	for _, problem := range s.LeftOver {
		fmt.Fprintln(&b, onOneLine(problem))
	}
	return b.String(), nil
}

// statusTable makes a table with a line for each policy.
func statusTable(s *status.Status, verbose bool) *table {
	columns := []string{"POLICY…", "STATE…", "LAST RUN", "ROWS", "LAG", "NEXT"}
	if verbose {
		columns = append(columns, "TABLE…")
	}
	t := newTable(columns...)
	for i := range s.Policies {
		p := &s.Policies[i]
		last, rows := p.LastText(s.At)
		cells := []any{p.Policy, p.StateText(), last, rows, p.LagText(), p.NextText(s.At)}
		if verbose {
			cells = append(cells, p.Table)
		}
		t.row(cells...)
	}
	return t
}
