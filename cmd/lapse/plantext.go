package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/survey"
)

func (c *surveyor) printAll(plans []plan) {
	if len(plans) == 0 {
		fmt.Fprintln(c.out, "no policy is in force: lapse apply -f FILE adds some, lapse plan -f FILE shows what they would do")
	}
	for i := range plans {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		c.print(&plans[i])
	}
}

func (c *surveyor) print(p *plan) {
	s := p.Survey
	title := fmt.Sprintf("%s on %s", s.Policy, s.Table)
	if s.Table == "" {
		title = cmp.Or(string(s.Policy), "a policy without a name")
	}
	if s.Version > 0 {
		state := string(s.State)
		if s.Version == p.HeldVersion {
			state = "held back"
		}
		title = fmt.Sprintf("%s, version %d, %s, on %s", s.Policy, s.Version, state, s.Table)
	}
	fmt.Fprintln(c.out, title)
	if len(p.Errors) > 0 {
		counted := ""
		if s.Table == "" {
			counted = ": nothing was counted"
		}
		c.line("mistakes", "%d, listed below%s", len(p.Errors), counted)
		if s.Table == "" {
			return
		}
	}
	if s.Trouble != "" {
		c.line("trouble", "%s: nothing was counted%s", s.Trouble, map[bool]string{true: ", and nothing is deleted"}[s.Version > 0])
	} else if !s.At.IsZero() {
		c.printCounts(s)
	}
	if p.NewlyDue != nil {
		c.line("newly", "%s in addition to those of the version in force: `lapse policy arm %s --version %d` says yes", rowsOf(*p.NewlyDue, survey.Exact), s.Policy, s.Version)
	}
	for _, warning := range s.Warnings {
		c.line("warning", "%s", warning)
	}
	if !c.sql {
		return
	}
	for _, text := range []string{s.Statement, s.Explain} {
		if text != "" {
			fmt.Fprintf(c.out, "\n%s\n", indent(text))
		}
	}
}

func (c *surveyor) line(name, format string, args ...any) {
	fmt.Fprintf(c.out, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
}

func (c *surveyor) printCounts(s *survey.Survey) {
	c.line("due", "%s at %s", rowsOf(s.Due, s.DueIs), s.At.UTC().Format(time.RFC3339))
	if s.Held > 0 {
		c.line("held", "%s that would be due: lapse hold list", rowsOf(s.Held, s.HeldIs))
	}
	if s.Sets != "" {
		c.line("sets", "would set %s of %s, which stay", s.Sets, rowsOf(s.Due, s.DueIs))
	}
	switch {
	case s.Oldest != nil && s.Newest != nil:
		c.line("from", "%s to %s", s.Oldest.UTC().Format(time.RFC3339), s.Newest.UTC().Format(time.RFC3339))
	case s.Oldest != nil:
		c.line("from", "%s", s.Oldest.UTC().Format(time.RFC3339))
	}
	if s.Unread != nil && s.Unread.Rows > 0 {
		c.line("unread", "%s", s.Unread)
	}
	if s.Local != nil {
		c.line("zone", "%s", s.Local)
		if s.Local.Question != "" {
			c.line("question", "%s", s.Local.Question)
		}
	}
	for _, cascade := range s.Cascades {
		if cascade.Rows == nil {
			c.line("cascade", "rows of %s, not counted: %s", cascade.Table, cascade.NotCounted)
			continue
		}
		c.line("cascade", "%s of %s", rowsOf(*cascade.Rows, cascade.RowsAre), cascade.Table)
	}
	if len(s.Drops) > 0 {
		c.line("drops", "%s whole, if all rows of them are due: %s", counted(len(s.Drops), "partition"), dropped(s.Drops))
	}
	c.printWay(s)
	c.printTime(s)
	switch {
	case s.Breaker.WouldTrip:
		c.line("stops", "%s: it would stop and ask before it deletes", s.Breaker.Why)
	case s.Breaker.Why != "":
		c.line("warning", "%s", s.Breaker.Why)
	}
}

// printWay says how the executor finds the rows, and in which shards.
func (c *surveyor) printWay(s *survey.Survey) {
	order := slices.Clone(s.Order)
	for i, by := range order {
		if len(by) > 64 {
			order[i] = "when a row is due" // for an expression; --sql and --json print it
		}
	}
	inOrder := "in the order of " + strings.Join(order, ", ")
	if s.Shape == functions.ShapeHeap {
		inOrder = "because the index would read most of it too, or much of it in random order, or there is none"
	}
	c.line("found by", "%s, %s", foundBy(s), inOrder)
	if s.Better != "" {
		c.line("index", "%s", c.few(s.Better))
	}
	shards := fmt.Sprint(len(s.Shards))
	switch {
	case len(s.Shards) == 1:
		shards += ": " + s.Shards[0].Name
	case len(s.Likely) > 0 && len(s.Likely) < len(s.Shards):
		shards = fmt.Sprintf("%d of %s can have due rows: %s", len(s.Likely), counted(len(s.Shards), "partition"), c.named(s.Likely))
	case len(s.Likely) < len(s.Shards):
		shards = fmt.Sprintf("none of %s can have due rows", counted(len(s.Shards), "partition"))
	}
	if s.Slices > 1 {
		shards += fmt.Sprintf(", each in %d slices", s.Slices)
	}
	if s.Ranges > 1 {
		of := "the due time"
		if s.Shape == functions.ShapeHeap {
			of = "its file"
		}
		shards += fmt.Sprintf(", in up to %d ranges of %s", s.Ranges, of)
	}
	c.line("shards", "%s", shards)
}

// named lists relations by name: the first few, or with --verbose all of them.
func (c *surveyor) named(all []database.Relation) string {
	names := database.Names(all)
	if more := len(names) - namedParts; more > 0 && !c.verbose {
		names = append(names[:namedParts], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// few shortens a text of many lines; --verbose prints all of it.
func (c *surveyor) few(text string) string {
	lines := strings.Split(text, "\n")
	if more := len(lines) - 2*namedParts; more > 0 && !c.verbose {
		lines = append(lines[:2*namedParts], fmt.Sprintf("    and %s more, with --verbose", counted(more, "statement")))
	}
	return strings.Join(lines, "\n")
}

// printTime says how long the deletion takes if nothing else runs, and at what speed.
func (c *surveyor) printTime(s *survey.Survey) {
	takes := "less than a second"
	if s.Estimate >= time.Second {
		takes = "about " + s.Estimate.Round(time.Second).String()
	}
	switch {
	case s.Runs > 1:
		takes += fmt.Sprintf(", in %d runs of max_rows_per_run,", s.Runs)
	case s.Limit != "" && s.Runs == 0:
		takes += fmt.Sprintf(", in runs of %s of the table, which was never analyzed: max_rows_per_run,", s.Limit)
	}
	if s.Windows > 0 {
		takes += fmt.Sprintf(", in %d openings of its window %s,", s.Windows, s.Window)
	}
	speed := string(s.SpeedFrom)
	if s.Gentle {
		speed += ", at gentle pace"
	}
	c.line("takes", "%s at %.0f rows per second (%s)", takes, s.RowsPerSecond, speed)
	if s.Beside > s.Estimate && s.Beside >= time.Second {
		c.line("", "about %s while an application runs, which gentle pace leaves most of the time", s.Beside.Round(time.Second))
	}
}

// foundBy names the index that PostgreSQL would use. PostgreSQL may still read a small table as a whole.
func foundBy(s *survey.Survey) string {
	switch {
	case s.Shape == functions.ShapeHeap:
		return "reading the table page by page"
	case s.Index == "":
		return string(s.Method)
	case s.Method == survey.Sequential:
		return fmt.Sprintf("%s (PostgreSQL finds that cheaper here than index %s)", s.Method, s.Index)
	}
	return fmt.Sprintf("%s %s", s.Method, s.Index)
}

// rowsOf formats a number of rows and how reliable it is.
func rowsOf(rows int64, are survey.Count) string {
	switch are {
	case survey.MoreThan:
		return "more than " + counted(rows, "row")
	case survey.Estimated:
		return "about " + counted(rows, "row") + " (an estimate: --exact counts)"
	}
	return counted(rows, "row")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// namedParts is the largest number of partitions that a line names.
const namedParts = 5

// dropped names partitions and says how many rows they have according to the catalog.
func dropped(all []survey.Drop) string {
	names, rows, known := make([]string, 0, namedParts+1), int64(0), true
	for i, d := range all {
		if i < namedParts {
			names = append(names, d.Name)
		}
		if d.Rows == nil {
			known = false
		} else {
			rows += *d.Rows
		}
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	text := strings.Join(names, ", ")
	if !known {
		return text + "; the number of rows is not known: analyze them"
	}
	return text + "; about " + counted(rows, "row")
}
