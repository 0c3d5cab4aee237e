package page

import (
	"fmt"
	"time"

	"lapse/audit/report"
)

// longTable is the largest number of rows in a table that is not folded.
const longTable = 12

// zeroLines makes the table of all lines that must be zero, for all policies.
func (m *maker) zeroLines() Section {
	t := &Table{Name: "zero", Caption: "Lines that must be zero", Columns: []Column{{Name: "policy"}}}
	means := &Table{Name: "zero-meaning", Caption: "What each line counts", Columns: []Column{{Name: "line"}, {Name: "what it counts"}}}
	for _, about := range report.ZeroLines {
		t.Columns = append(t.Columns, Column{about.Title(), true})
		means.Rows = append(means.Rows, Row{Cells: []Cell{{Text: about.Title()}, {Text: about.Means()}}})
	}
	for _, i := range m.order {
		p := &m.Policies[i]
		row := Row{Cells: []Cell{text(p.Name, policyAt(i).in("name"))}}
		for j := range p.Zero {
			row.Cells = append(row.Cells, lineCell(p, j, policyAt(i)))
		}
		t.Rows = append(t.Rows, row)
	}
	return Section{
		ID: "zero", Title: "Lines that must be zero", Lead: "A number that is not zero is marked with a cross; what could not be assessed, with a question mark, and the policy’s own part says why.",
		Blocks: []Block{{Table: t}, {Table: means}},
	}
}

// lineCell makes the cell of a policy's line that must be zero. Without a floor nothing can be below one.
func lineCell(p *report.Policy, j int, at place) Cell {
	z := &p.Zero[j]
	if noFloor(p, z) {
		return Cell{Text: "no floor"}
	}
	return zeroCell(z.About, z.Figure, at.in("zero", j))
}

func noFloor(p *report.Policy, z *report.ZeroLine) bool {
	return z.About == report.BelowFloor && p.Floors.Len() == 0 && z.Figure.Least() == 0
}

// zeroCell makes the cell of a line's number. A gap does not count against the policy: its content is unknown.
func zeroCell(about report.About, f report.Figure, at place) Cell {
	c := figure(f, at.in("figure"))
	switch {
	case about == report.Gaps && !f.Is(0):
		c.Tone = Open
	case f.NotAssessed == report.Withheld || f.Least() > 0:
		c.Tone = Fail
	case f.Value == nil:
		c.Tone = Open
	}
	return c
}

const rollForwardLead = "It runs between two counts, each of one moment of the database, and not between the ends of the period: " +
	"due and held at the start, with what fell due less what was refreshed, less the deletions, is due and held at the end. " +
	"“Fell due less refreshed” is derived from the others. It has the rows that fell due, less those that were given a later due time, " +
	"and the rows that others deleted before they were due."

var rollForwardColumns = []Column{
	{Name: "policy"},
	{"due at the start", true},
	{"held at the start", true},
	{"fell due less refreshed (derived)", true},
	{"deleted by the policy", true},
	{"deleted by others (users and unverified)", true},
	{"due at the end", true},
	{"held at the end", true},
	{"in quarantine at the end", true},
}

// noRollForward is said where no policy was counted twice in the period.
const noRollForward = "There is none: it runs between two counts of a policy’s due rows in the period, and no policy has two. "

// rollForward makes one table of all policies' balances.
func (m *maker) rollForward() Section {
	twice := false
	t := &Table{Name: "rollforward", Caption: "Rows that were due, from the first count of the period to the last", Columns: rollForwardColumns}
	for _, i := range m.order {
		p, at := &m.Policies[i], policyAt(i).in("roll_forward")
		f := &p.RollForward
		twice = twice || f.NotAssessed != report.NoSnapshot
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			text(p.Name, policyAt(i).in("name")),
			figure(f.DueStart, at.in("due_at_start")),
			figure(f.HeldStart, at.in("held_at_start")),
			figure(f.FellDue, at.in("fell_due_less_refreshed")),
			figure(f.ByPolicy, at.in("deleted_by_policy")),
			figure(f.ByUsers, at.in("deleted_by_users")),
			figure(f.DueEnd, at.in("due_at_end")),
			figure(f.HeldEnd, at.in("held_at_end")),
			figure(f.QuarantineEnd, at.in("quarantined_at_end")),
		}})
	}
	lead := rollForwardLead
	if !twice && len(m.order) > 0 {
		t.Fold, lead = true, noRollForward+lead
	}
	return Section{ID: "rollforward", Title: "Roll-forward", Blocks: []Block{{Table: t}}, Lead: lead}
}

// deletions makes the table of the whole database's deletions.
func (m *maker) deletions() Section {
	byDay := map[string]*Bar{}
	t := &Table{Name: "tables", Caption: "Rows that are gone, by table", Columns: []Column{
		{Name: "table"},
		{"by policies", true},
		{"by dropping partitions", true},
		{"overwritten", true},
		{"by users", true},
		{"unverified", true},
		{"truncated", true},
		{"moved to another partition", true},
	}}
	days := &Table{Name: "table-days", Caption: "Rows that are gone, by table and day", Fold: true, Columns: []Column{
		{Name: "table"},
		{Name: "day"},
		{"by policies", true},
		{"by dropping partitions", true},
		{"overwritten", true},
		{"by users", true},
		{"unverified", true},
	}}
	for i := range m.Tables {
		x, at := &m.Tables[i], place("").in("tables", i)
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			text(x.Table, at.in("table")), count(x.System, at.in("system")), count(x.ByDrop, at.in("by_drop")), count(x.Soft, at.in("soft")), count(x.User, at.in("user")),
			count(x.Unverified, at.in("unverified")), count(x.Truncates, at.in("truncates")), count(x.Moves, at.in("moves")),
		}})
		for j := range x.Days {
			x, at := &x.Days[j], at.in("days", j)
			days.Rows = append(days.Rows, Row{Cells: []Cell{
				text(m.Tables[i].Table, place("").in("tables", i, "table")), text(x.Day, at.in("day")).whole(), count(x.System, at.in("system")), count(x.ByDrop, at.in("by_drop")),
				count(x.Soft, at.in("soft")), count(x.User, at.in("user")), count(x.Unverified, at.in("unverified")),
			}})
			bar := byDay[x.Day]
			if bar == nil {
				bar = &Bar{Label: x.Day, Parts: []int64{0, 0}}
				byDay[x.Day] = bar
			}
			bar.Parts[0] += x.System + x.ByDrop
			bar.Parts[1] += x.User + x.Unverified
		}
	}
	s := Section{
		ID: "deletions", Title: "Deletions", Lead: "What the write-ahead log has of every table that a policy is on or deleted from, no matter who did it. Days are in UTC.",
	}
	if bars := m.bars("all-days", "Rows that are gone, by day", byDay); bars != nil {
		s.Blocks = append(s.Blocks, Block{Bars: bars, Keys: [2]string{"by policies", "by users and unverified"}})
	}
	s.Blocks = append(s.Blocks, Block{Table: t})
	if len(days.Rows) > 0 {
		by := days.byMonth()
		s.Blocks = append(s.Blocks, Block{Table: &by})
	}
	return s
}

const day = 24 * time.Hour

// mostBars is the largest number of bars in a chart: for longer periods a bar stands for several consecutive days.
const mostBars = 124

// bars makes the chart of the period's days; nil if all bars would be empty.
func (m *maker) bars(id, title string, byDay map[string]*Bar) *Bars {
	total := int64(0)
	for _, bar := range byDay {
		total += sumOf(bar.Parts)
	}
	if total == 0 {
		return nil
	}
	var all []Bar
	var most Bar
	first, end := m.Period.From.Time().UTC().Truncate(day), m.Period.To.Time()
	for at := range byDay { // days outside the period, after a clock was set back
		if t := report.Instant(at + "T00:00:00Z").Time(); t.Before(first) {
			first = t
		}
	}
	width := max(1, int(end.Sub(first)/day+mostBars)/mostBars)
	for at := first; at.Before(end); at = at.Add(day) {
		label := at.Format("2006-01-02")
		if n := int(at.Sub(first) / day); n%width == 0 {
			all = append(all, Bar{Label: label, Parts: []int64{0, 0}})
		}
		last := &all[len(all)-1]
		if bar := byDay[label]; bar != nil {
			last.Parts[0] += bar.Parts[0]
			last.Parts[1] += bar.Parts[1]
			if sumOf(bar.Parts) > sumOf(most.Parts) {
				most = *bar
			}
		}
	}
	for i := range all {
		all[i].Text = fmt.Sprintf("%s: %s", all[i].Label, counted(sumOf(all[i].Parts), "row"))
		all[i].Label = all[i].Label[5:]
	}
	if width > 1 {
		title = fmt.Sprintf("%s, %d days a bar", title, width)
	}
	quiet := 0
	for i := range all {
		if sumOf(all[i].Parts) == 0 {
			quiet++
		}
	}
	return &Bars{ID: id, Title: title, Days: all, Desc: fmt.Sprintf("%d bars from %s to %s; %d are empty. The day with most is %s, with %s. ",
		len(all), first.Format("2006-01-02"), end.Format("2006-01-02"), quiet, most.Label, counted(sumOf(most.Parts), "row"))}
}
