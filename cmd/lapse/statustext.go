package main

import (
	"fmt"
	"strings"
	"time"
)

// clearScreen empties a terminal and goes to its first line.
const clearScreen = "\x1b[H\x1b[2J"

func (a *app) showStatus(s *status) error {
	if a.asJSON {
		return a.printJSON(s)
	}
	text, err := s.text(a.terminalWidth(), a.verbose)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

// text is the screen: what holds for the whole database, a line for each policy, and below it what a person should know of it. What a
// login wrote is shown on one line: it draws nothing on the terminal, and adds no line to the others.
func (s *status) text(width int, verbose bool) (string, error) {
	var b strings.Builder
	if s.Paused != nil {
		fmt.Fprintf(&b, "%s: `lapse resume --all` allows them again\n", s.Paused)
	}
	if s.Suspended != "" {
		fmt.Fprintln(&b, s.Suspended)
	}
	fmt.Fprintln(&b, "audit: "+s.Audit.text(s.At))
	fmt.Fprintln(&b, "executors: "+onOneLine(s.executors()))
	if len(s.Policies) == 0 {
		fmt.Fprintln(&b, "no policy is in force: lapse apply -f FILE brings some")
		return b.String(), nil
	}
	if err := s.table(verbose).write(&b, width); err != nil {
		return "", err
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		for _, note := range p.remarks() {
			fmt.Fprintf(&b, "%s: %s\n", p.Policy, onOneLine(note))
		}
	}
	for _, problem := range s.LeftOver {
		fmt.Fprintln(&b, onOneLine(problem))
	}
	return b.String(), nil
}

// table has a line for each policy.
func (s *status) table(verbose bool) *table {
	columns := []string{"POLICY…", "STATE…", "LAST RUN", "ROWS", "LAG", "NEXT"}
	if verbose {
		columns = append(columns, "TABLE…")
	}
	t := newTable(columns...)
	for i := range s.Policies {
		p := &s.Policies[i]
		last, rows := "-", "-"
		if p.LastRun != nil {
			last = short(s.At.Sub(p.LastRun.Started)) + " ago"
			_, rows = p.LastRun.text()
		}
		if p.Looked != nil {
			last = "looked " + short(s.At.Sub(*p.Looked)) + " ago"
		}
		cells := []any{p.Policy, p.state(), last, rows, p.lag(), p.next(s.At)}
		if verbose {
			cells = append(cells, p.Table)
		}
		t.row(cells...)
	}
	return t
}

// text is the line about the audit.
func (a *auditStatus) text(now time.Time) string {
	switch {
	case !a.Required:
		return "off: what is deleted leaves no evidence outside this database"
	case !a.Exists:
		return fmt.Sprintf("slot %s is not there: nothing is deleted; see `lapse doctor`", a.Slot)
	case a.Lost:
		return fmt.Sprintf("slot %s is lost: nothing is deleted; see `lapse doctor`", a.Slot)
	}
	text := fmt.Sprintf("slot %s: ", a.Slot)
	if a.Active {
		text += "being read"
	} else {
		text += "nobody reads it: start `lapse audit` or `lapse serve`"
	}
	text += fmt.Sprintf(", %s behind, %s kept", size(a.Behind), size(a.Held))
	if a.Headroom != nil {
		text += fmt.Sprintf(", %s until it is lost", size(*a.Headroom))
	}
	if a.LastBeat == nil {
		return text + ", no beat yet"
	}
	return text + ", last beat " + short(now.Sub(*a.LastBeat)) + " ago"
}

// size is a number of bytes for a person.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f, unit := float64(max(n, 0)), 0
	for f >= 1000 && unit < len(units)-1 {
		f, unit = f/1000, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// short is a length of time for a person, in its largest unit.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
