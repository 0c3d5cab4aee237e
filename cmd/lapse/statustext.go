package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// clearScreen empties a terminal and goes to its first line.
const clearScreen = "\x1b[H\x1b[2J"

func (a *app) showStatus(s *status, asJSON bool) error {
	if asJSON {
		return a.printJSON(s)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	width := 0
	if a.width != nil {
		width = a.width()
	}
	_, err = fmt.Fprint(a.out, cutLines(text, width))
	return err
}

// cutLines cuts each line of a text to a width, 0 for as long as it is.
func cutLines(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > width {
			line = string([]rune(line)[:width-1]) + "…"
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// text is the screen: what holds for the whole database, a line for each policy, and below it what a person should know of it. What a
// login wrote is shown on one line: it draws nothing on the terminal, and adds no line to the others.
func (s *status) text() (string, error) {
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
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tSTATE\tLAST RUN\tROWS\tLAG\tNEXT\tTABLE")
	for i := range s.Policies {
		p := &s.Policies[i]
		last, next, lag, rows := "-", "-", "-", "-"
		if p.LastRun != nil {
			last = short(s.At.Sub(p.LastRun.Started)) + " ago"
			_, rows = p.LastRun.text()
		}
		if p.Next != nil {
			next, lag = "due", "none"
			if wait := p.Next.Sub(s.At); wait > 0 {
				next = "in " + short(wait)
			}
			if p.Lag > 0 {
				lag = short(time.Duration(p.Lag * float64(time.Second)))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Policy, onOneLine(p.state()), last, onOneLine(rows), lag, next, onOneLine(p.Table))
	}
	if err := w.Flush(); err != nil {
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

// state is the policy's, with what an executor does about it.
func (p *policyState) state() string {
	text := string(p.State)
	for i := range p.Work {
		does := p.Work[i].State
		if p.Work[i].Silent > 0 {
			does += " (silent)"
		}
		if !strings.Contains(text, does) {
			text += ", " + does
		}
	}
	return text
}

// remarks are the list's notes with what executors say.
func (p *policyState) remarks() []string {
	var remarks []string
	if p.Reason != "" && p.State != "armed" {
		remarks = append(remarks, string(p.State)+": "+p.Reason)
	}
	for i := range p.Work {
		switch w := &p.Work[i]; {
		case w.Silent > 0:
			remarks = append(remarks, fmt.Sprintf("%s: executor %s has been silent for %s: if it was killed, its shards are free for others half a minute after its last batch",
				w.State, w.Holder, w.silent()))
		case w.Reason != "":
			remarks = append(remarks, w.State+": "+w.Reason)
		}
	}
	return append(remarks, p.notes()...)
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

// silent is for how long a process has said nothing, for a person.
func (p *process) silent() string { return short(time.Duration(p.Silent * float64(time.Second))) }

// executors is the line about the processes that delete.
func (s *status) executors() string {
	if len(s.Executors) == 0 {
		return "none has said within two minutes that it runs: start `lapse run` or `lapse serve`"
	}
	reasons, silent, runs := "", "", 0
	for i := range s.Executors {
		e := &s.Executors[i]
		if e.Silent > 0 {
			silent += fmt.Sprintf("; %s has been silent for %s: killed, or hung", e.Holder, e.silent())
			continue
		}
		runs++
		if e.Reason != "" && !strings.Contains(reasons, e.Reason) {
			reasons += "; " + e.State + ": " + e.Reason
		}
	}
	if runs == 0 {
		return "none that says so" + silent
	}
	return fmt.Sprint(runs) + cmp.Or(reasons, ", running") + silent
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
