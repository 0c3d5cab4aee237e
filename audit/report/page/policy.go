package page

import (
	"fmt"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// policy makes the section on one policy.
func (m *maker) policy(i int) Section {
	p, at := &m.Policies[i], policyAt(i)
	s := Section{ID: policyID(i), Title: "Policy " + plaintext.Line(p.Name), Lead: gradeWords[p.Verdict] + ": " + sentence(p)}
	s.of = plaintext.Line(p.Name)
	s.table(Table{Name: "policy-about", Caption: "What it is", Columns: []Column{{Name: "what"}, {Name: "value"}}, Rows: policyFacts(p, at)})
	s.table(Table{
		Name: "policy-findings", Caption: "Why the verdict", Columns: []Column{{Name: "finding"}, {Name: "weight"}, {"number", true}, {Name: "what it means"}},
		Rows: rows(p.Findings, func(j int, f *report.Finding) []Cell {
			at := at.in("findings", j)
			means := f.About.Means()
			if f.Why != "" {
				means += " " + f.Why.Text()
			}
			number := Cell{Text: "–"}
			if f.Count > 0 {
				number = count(f.Count, at.in("count"))
			}
			return []Cell{{Text: f.About.Title()}, graded(f.Grade, at.in("grade")), number, {Text: means}}
		}),
	})
	s.zero(p, at)
	if why := p.RollForward.NotAssessed; why != "" {
		s.Blocks = append(s.Blocks, Block{Title: "Roll-forward", Text: "There is none: " + why.Text()})
	} else {
		s.table(Table{
			Name: "policy-rollforward", Caption: "Roll-forward", Columns: []Column{{Name: "rows"}, {"number", true}, {Name: "from"}},
			Rows: balance(&p.RollForward, at.in("roll_forward")),
		})
	}
	m.deleted(&s, p, at, i)
	s.table(Table{Name: "policy-timeliness", Caption: "How long after their due time rows went", Columns: figureColumns, Rows: timeliness(&p.Timeliness, at.in("timeliness"))})
	steps := at.in("timeliness", "steps")
	s.table(Table{
		Name: "policy-lateness", Caption: "Rows that it deleted, by how late after their due time they went", Columns: []Column{{Name: "over"}, {Name: "up to"}, {"rows", true}},
		Rows: rows(p.Timeliness.Steps, func(j int, x *report.LateRows) []Cell {
			bound := func(s *int64, from place) Cell {
				if s == nil {
					return Cell{Text: "–"}
				}
				c := count(*s, from)
				c.Text = step(*s)
				return c
			}
			return []Cell{bound(x.Over, steps.in(j, "over_seconds")), bound(x.UpTo, steps.in(j, "up_to_seconds")), count(x.Rows, steps.in(j, "rows"))}
		}),
	})
	s.table(Table{Name: "policy-others", Caption: "What others did to its table, and what is in quarantine", Columns: figureColumns, Rows: others(p, at)})
	s.changes(p, at)
	return s
}

// table adds a table if it has rows.
func (s *Section) table(t Table) {
	if len(t.Rows) == 0 {
		return
	}
	t.Of, t.Fold = s.of, t.Fold || len(t.Rows) > longTable
	s.Blocks = append(s.Blocks, Block{Table: &t})
}

// rows makes a row of each item.
func rows[T any](all []T, cells func(i int, item *T) []Cell) []Row {
	out := make([]Row, len(all))
	for i := range all {
		out[i] = Row{Cells: cells(i, &all[i])}
	}
	return out
}

// listed makes the rows of a list, and a last one with the number of further items.
func listed[T any](l *report.List[T], at place, cells func(item *T, at place) []Cell) []Row {
	out := rows(l.Items, func(i int, item *T) []Cell { return cells(item, at.in("items", i)) })
	if l.More > 0 {
		more := make([]Cell, len(out[0].Cells))
		more[0] = count(l.More, at.in("more"))
		more[0].Text += " more"
		out = append(out, Row{Cells: more})
	}
	return out
}

// named makes a row of a table with one value a row.
func named(what string, c Cell) Row { return Row{Cells: []Cell{{Text: what}, c}} }

func policyFacts(p *report.Policy, at place) []Row {
	out := []Row{
		named("table", text(p.Table, at.in("table"))),
		named("state at the end", text(p.State, at.in("state"))),
		named("version at the end", count(p.Version, at.in("version"))),
		named("what it does", text(actions[p.Action], "")),
		named("latitude (grace period)", text(p.Latitude, at.in("latitude"))),
		named("evidence", text(evidences[p.Evidence], "")),
	}
	if p.Owner != "" {
		out = append(out, named("owner", text(p.Owner, at.in("owner"))))
	}
	if p.Basis != "" {
		out = append(out, named("basis", text(p.Basis, at.in("basis"))))
	}
	return out
}

var (
	actions   = map[string]string{"delete": "deletes rows", "soft": "sets a column of rows, which stay", "drop_partition": "drops partitions whole"}
	evidences = map[string]string{
		"due": "due: the write-ahead log has each deleted row’s due time", "claimed": "claimed: that deleted rows were due is the word of the function that deleted them",
	}
)

// zero makes the table of the policy's lines that must be zero, and of the transactions for those that are not.
func (s *Section) zero(p *report.Policy, at place) {
	t := Table{Name: "policy-zero", Caption: "Lines that must be zero", Columns: []Column{{Name: "line"}, {"number", true}, {Name: "what it counts; if not assessed, why"}}}
	for j := range p.Zero {
		z := &p.Zero[j]
		means := z.About.Means()
		if f := z.Figure; noFloor(p, z) {
			means += " The log knows no floor of its table."
		} else if f.NotAssessed != "" {
			means += " Not assessed: " + f.NotAssessed.Text()
			if f.AtMost != nil {
				means += fmt.Sprintf(" At most it is %s.", plaintext.Number(*f.AtMost))
			}
		}
		t.Rows = append(t.Rows, Row{Cells: []Cell{{Text: z.About.Title()}, lineCell(p, j, at), {Text: means}}})
	}
	s.table(t)
	for j := range p.Zero {
		z := &p.Zero[j]
		s.table(Table{
			Name: "policy-zero-" + string(z.About), Caption: z.About.Title() + ": the transactions", Columns: transactionColumns,
			Rows: listed(&z.Transactions, at.in("zero", j, "transactions"), transaction),
		})
	}
}

var transactionColumns = []Column{{Name: "committed (UTC)"}, {"transaction", true}, {Name: "position"}, {Name: "table"}, {"rows", true}, {"record of the log", true}}

func transaction(t *report.Transaction, at place) []Cell {
	return []Cell{
		instant(t.At, at.in("at")), ref(int64(t.XID), at.in("xid")), text(t.Commit, at.in("commit_lsn")), text(t.Table, at.in("table")),
		count(t.Rows, at.in("rows")), ref(t.Leaf, at.in("leaf")),
	}
}

// ref makes the cell of a number that identifies something: it has no commas.
func ref(n int64, at place) Cell {
	c := count(n, at)
	c.Text = c.Raw
	return c
}

// balance makes the table of the roll-forward, as a sum.
func balance(f *report.RollForward, at place) []Row {
	row := func(what string, value report.Figure, member, from, kind string) Row {
		return Row{kind, []Cell{{Text: what}, figure(value, at.in(member)), {Text: from}}}
	}
	start, end := "", ""
	if f.Start != nil {
		start = "count of " + moment(f.Start.Taken) + " UTC"
	}
	if f.End != nil {
		end = "count of " + moment(f.End.Taken) + " UTC"
	}
	return []Row{
		row("due at the start", f.DueStart, "due_at_start", start, ""),
		row("and held at the start: due but for a hold", f.HeldStart, "held_at_start", start, ""),
		row("+ fell due less refreshed", f.FellDue, "fell_due_less_refreshed", "derived: what makes the others come out", "net"),
		row("− deleted by the policy", f.ByPolicy, "deleted_by_policy", "the log, between the two counts", ""),
		row("− deleted by others (users and unverified)", f.ByUsers, "deleted_by_users", "the log, between the two counts", ""),
		row("= due at the end", f.DueEnd, "due_at_end", end, "sum"),
		row("and held at the end: due but for a hold", f.HeldEnd, "held_at_end", end, "sum"),
		row("in quarantine at the start (among the due)", f.QuarantineStart, "quarantined_at_start", start, ""),
		row("in quarantine at the end (among the due)", f.QuarantineEnd, "quarantined_at_end", end, ""),
	}
}

// The columns of the tables of deletions.
var deletedColumns = []Column{{"by row", true}, {"by drop", true}, {"overwritten", true}, {"of other tables, by cascade", true}}

func deletedCells(byRow, byDrop, soft, cascaded int64, at place) []Cell {
	return []Cell{count(byRow, at.in("by_row")), count(byDrop, at.in("by_drop")), count(soft, at.in("soft")), count(cascaded, at.in("cascaded"))}
}

// deleted makes the tables of the policy's deletions.
func (m *maker) deleted(s *Section, p *report.Policy, at place, i int) {
	d := &p.Deleted
	at = at.in("deleted")
	byDay := map[string]*Bar{}
	for j := range d.Days {
		byDay[d.Days[j].Day] = &Bar{Label: d.Days[j].Day, Parts: []int64{d.Days[j].ByRow + d.Days[j].Soft, d.Days[j].ByDrop}}
	}
	title, keys := "Rows that it deleted, by day", [2]string{"by row", "by dropping partitions"}
	if d.Soft > 0 {
		title, keys[0] = "Rows that it deleted or overwrote, by day", "by row, or overwritten"
	}
	if bars := m.bars(fmt.Sprintf("days-%d", i+1), title, byDay); bars != nil {
		s.Blocks = append(s.Blocks, Block{Bars: bars, Keys: keys})
	}
	total := Row{"sum", append([]Cell{{Text: "all"}}, deletedCells(d.ByRow, d.ByDrop, d.Soft, d.Cascaded, at)...)}
	by := func(what, caption string, out []Row) {
		if len(out) > 1 {
			s.table(Table{Name: "policy-" + what, Caption: caption, Columns: append([]Column{{Name: what}}, deletedColumns...), Rows: append(out, total)})
		}
	}
	s.table(Table{Name: "policy-day", Caption: "Deleted, by day", Columns: append([]Column{{Name: "day"}}, deletedColumns...), Rows: rows(d.Days, func(j int, x *report.Day) []Cell {
		at := at.in("days", j)
		return append([]Cell{text(x.Day, at.in("day")).whole()}, deletedCells(x.ByRow, x.ByDrop, x.Soft, x.Cascaded, at)...)
	})}.byMonth(total))
	by("table", "Deleted, by table", listed(&d.Tables, at.in("tables"), func(x *report.TableDeleted, at place) []Cell {
		return append([]Cell{text(x.Table, at.in("table"))}, deletedCells(x.ByRow, x.ByDrop, x.Soft, x.Cascaded, at)...)
	}))
	by("version", "Deleted, by version of the policy", rows(d.Versions, func(j int, x *report.VersionDeleted) []Cell {
		at := at.in("versions", j)
		return append([]Cell{count(x.Version, at.in("version"))}, deletedCells(x.ByRow, x.ByDrop, x.Soft, x.Cascaded, at)...)
	}))
	s.table(Table{Name: "policy-partitions", Caption: "Partitions that it dropped, by its own count", Columns: []Column{
		{Name: "partition"},
		{"rows", true},
		{Name: "oldest (UTC)"},
		{Name: "newest (UTC)"},
		{Name: "dropped (UTC)"},
		{"record of the log", true},
	}, Rows: listed(&d.Partitions, at.in("partitions"), func(x *report.DroppedPartition, at place) []Cell {
		return []Cell{
			text(x.Table, at.in("table")), count(x.Rows, at.in("rows")), instant(x.Oldest, at.in("oldest")), instant(x.Newest, at.in("newest")),
			instant(x.At, at.in("at")), ref(x.Leaf, at.in("leaf")),
		}
	})})
}

// assessed makes a row with a figure and, if it has no number, the reason.
func assessed(what string, f report.Figure, c Cell) Row {
	return Row{Cells: []Cell{{Text: what}, c, {Text: f.NotAssessed.Text()}}}
}

var figureColumns = []Column{{Name: "what"}, {"value", true}, {Name: "if there is none, why"}}

// timeliness makes the table of how late rows went.
func timeliness(t *report.Timeliness, at place) []Row {
	after := func(what string, l report.Lateness, at place) Row {
		return Row{Cells: []Cell{{Text: what}, lateness(l, at), {Text: l.NotAssessed.Text()}}}
	}
	return []Row{
		{Cells: []Cell{{Text: "rows whose lateness the log has"}, count(t.Rows, at.in("rows")), {}}},
		{Cells: []Cell{{Text: "rows whose lateness it does not have"}, count(t.Other, at.in("rows_not_told")), {Text: t.Why.Text()}}},
		after("median: half of all went no later", t.P50, at.in("p50")),
		after("95 of 100 went no later", t.P95, at.in("p95")),
		after("the latest", t.Worst, at.in("worst")),
		assessed("went later than due and grace period allow", t.PastDeadline, figure(t.PastDeadline, at.in("past_deadline"))),
		after("still there at the last count: the oldest due row, due for", t.OldestPresent, at.in("oldest_present")),
	}
}

// others makes the table of what others did, and of the quarantine.
func others(p *report.Policy, at place) []Row {
	u, q := &p.Users, &p.Quarantine
	users, in := at.in("users"), at.in("quarantine")
	plain := func(what string, f report.Figure, at place) Row { return assessed(what, f, figure(f, at)) }
	return []Row{
		plain("deleted by others (users and unverified)", u.Deleted, users.in("deleted")),
		plain("of them, rows that were due", u.Due, users.in("due")),
		plain("of them, rows that were not due yet", u.NotDue, users.in("not_due")),
		plain("of them, rows under a hold", u.Held, users.in("held")),
		plain("truncated", u.Truncates, users.in("truncates")),
		plain("moved to another partition: no deletions", u.Moves, users.in("moves")),
		plain("in quarantine at the start", q.AtStart, in.in("at_start")),
		plain("went into quarantine", report.Number(q.Entered), "").from(in.in("entered")),
		plain("left it", report.Number(q.Left), "").from(in.in("left")),
		plain("in quarantine at the end", q.AtEnd, in.in("at_end")),
	}
}

// from says where the number of the row comes from.
func (r Row) from(at place) Row {
	r.Cells[1].From = string(at)
	return r
}

// changes makes the tables of the policy's changes.
func (s *Section) changes(p *report.Policy, at place) {
	s.table(Table{Name: "policy-versions", Caption: "Versions: in force at the start, or made in the period", Columns: []Column{
		{Name: "version"},
		{Name: "made (UTC)"},
		{Name: "by"},
		{Name: "reason"},
		{Name: "terms"},
		{"record of the log", true},
	}, Rows: listed(&p.Versions, at.in("versions"), func(v *report.Version, at place) []Cell {
		return []Cell{
			count(v.Version, at.in("version")), instant(v.Made, at.in("made")), text(v.By, at.in("by")), text(v.Reason, at.in("reason")),
			{Text: terms(v)},
			ref(v.Leaf, at.in("leaf")),
		}
	})})
	s.table(Table{Name: "policy-states", Caption: "Changes of its state", Columns: []Column{
		{Name: "at (UTC)"},
		{Name: "state"},
		{"version", true},
		{Name: "by"},
		{Name: "reason"},
		{Name: "how"},
		{"record of the log", true},
	}, Rows: listed(&p.States, at.in("states"), func(c *report.StateChange, at place) []Cell {
		return []Cell{
			instant(c.At, at.in("at")), text(c.State, at.in("state")), count(c.Version, at.in("version")), text(c.By, at.in("by")), text(c.Reason, at.in("reason")),
			byHand(c.ByHand), ref(c.Leaf, at.in("leaf")),
		}
	})})
	s.table(Table{Name: "policy-pauses", Caption: "Pauses", Columns: []Column{
		{Name: "from (UTC)"},
		{Name: "to (UTC)"},
		{"length in the period", true},
		{Name: "by"},
		{Name: "reason"},
	}, Rows: listed(&p.Pauses, at.in("pauses"), func(x *report.Pause, at place) []Cell {
		long := seconds(report.Number(x.Seconds), "")
		long.From = string(at.in("seconds"))
		return []Cell{instant(x.From, at.in("from")), instant(x.To, at.in("to")), long, text(x.By, at.in("by")), text(x.Reason, at.in("reason"))}
	})})
	s.counts(p, at)
}

// counts makes the tables of the executor's counts and of the floors.
func (s *Section) counts(p *report.Policy, at place) {
	s.table(Table{Name: "policy-snapshots", Caption: "Counts of what was due: the word of the program that deletes", Columns: []Column{
		{Name: "taken (UTC)"},
		{"version", true},
		{"due", true},
		{"of them, past the grace period", true},
		{"held", true},
		{"in quarantine", true},
		{Name: "not counted, why"},
		{"record of the log", true},
	}, Rows: listed(&p.Snapshots, at.in("snapshots"), func(x *report.Snapshot, at place) []Cell {
		return []Cell{
			instant(x.Taken, at.in("taken")), count(x.Version, at.in("version")), count(x.Due, at.in("due")), count(x.Overdue, at.in("overdue")),
			count(x.Held, at.in("held")), count(x.Quarantined, at.in("quarantined")), text(x.NotCounted, at.in("not_counted")), ref(x.Leaf, at.in("leaf")),
		}
	})})
	s.table(Table{Name: "policy-floors", Caption: "Floors of lapse.yaml, below which nothing is deleted", Columns: []Column{
		{Name: "version"},
		{Name: "table"},
		{Name: "at least"},
		{"deleted below it", true},
	}, Rows: listed(&p.Floors, at.in("floors"), func(x *report.RetainedAtLeast, at place) []Cell {
		return []Cell{count(x.Version, at.in("version")), text(x.Table, at.in("table")), text(x.Least, at.in("least")), figure(x.Below, at.in("deleted_below"))}
	})})
}

func byHand(is bool) Cell {
	if is {
		return Cell{Text: "by hand, with no command", Tone: Warn}
	}
	return Cell{Text: "by a command"}
}

// terms says when a version's rows are due.
func terms(v *report.Version) string {
	t := v.Terms
	if t == nil {
		return "the log does not say"
	}
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, strings.TrimSpace(name+" "+plaintext.Line(value)))
		}
	}
	add("", t.Kind)
	add("column", t.Column)
	add("path", t.Path)
	add("after", t.After)
	add("span", t.Span)
	add("ttl column", t.TTLColumn)
	add("default", t.TTLDefault)
	add("sidecar", t.Sidecar)
	add("zone", t.Zone)
	if t.Where {
		parts = append(parts, "with a condition")
	}
	add("", t.Schedule)
	add("window", t.Window)
	add("sets", t.Sets)
	add("latitude", t.Latitude)
	return strings.Join(parts, " · ")
}
