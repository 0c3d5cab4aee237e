package page

import (
	"strings"

	"lapse/audit/report"
)

// NewRedacted makes a redacted report's document.
func NewRedacted(r *report.Redacted, build string) *Document {
	d := &Document{
		Title: "Retention report, redacted", Lead: purpose, Build: build, Form: formReport, Words: glossary, Verify: steps(r.Log.PublicKey, nil),
		Unknown: []string{
			"Names of policies, tables and people, reasons, holds, and the transactions of each line: they are in the report that is not redacted.",
			"Numbers from 1 to 4: they are shown as “<5”. A total that would give one away is the range that follows from its parts as they are shown.",
			copiesUnknown,
			countsUnknown,
		},
	}
	root := place("")
	d.Facts = []Fact{
		{"Period", period(r.Period)},
		{"Log", text(r.Log.Name, root.in("log", "name"))},
		{"Log before the period", opening(r.Log.Opening, noOpening)},
		{"Log at its end", checkpoint(&r.Log.Closing)},
		{"Gaps", count(r.Gaps, root.in("gaps"))},
		{"Restores", count(r.Restores, root.in("restores"))},
	}
	for _, g := range grades {
		for i := range r.Policies {
			p := &r.Policies[i]
			if p.Verdict == g {
				d.Verdicts = append(d.Verdicts, verdict(g, policyAt(i), text(p.Code, policyAt(i).in("code")), redactedSentence(p), policyID(i)))
			}
		}
	}
	d.Sections = []Section{redactedZero(r), redactedRollForward(r)}
	for i := range r.Policies {
		d.Sections = append(d.Sections, redactedPolicy(&r.Policies[i], i))
	}
	return d
}

func redactedSentence(p *report.RedactedPolicy) string {
	if len(p.Findings) == 0 {
		return "every line that must be zero is zero."
	}
	all := make([]report.Finding, len(p.Findings))
	for i, f := range p.Findings {
		all[i] = report.Finding{Grade: f.Grade, About: f.About}
	}
	return because(all) + "."
}

func redactedZero(r *report.Redacted) Section {
	t := &Table{Name: "zero", Caption: "Lines that must be zero", Columns: []Column{{Name: "policy"}}}
	for _, about := range report.ZeroLines {
		t.Columns = append(t.Columns, Column{about.Title(), true})
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		row := Row{Cells: []Cell{text(p.Code, policyAt(i).in("code"))}}
		for j := range p.Zero {
			row.Cells = append(row.Cells, zeroCell(p.Zero[j].About, p.Zero[j].Figure, policyAt(i).in("zero", j)))
		}
		t.Rows = append(t.Rows, row)
	}
	return Section{ID: "zero", Title: "Lines that must be zero", Lead: "Where one is not, only whether it is below five is said.", Blocks: []Block{{Table: t}}}
}

func redactedRollForward(r *report.Redacted) Section {
	t := &Table{Name: "rollforward", Caption: "Rows that were due, from the first count of the period to the last", Columns: rollForwardColumns}
	for i := range r.Policies {
		p, at := &r.Policies[i], policyAt(i).in("roll_forward")
		f := &p.RollForward
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			text(p.Code, policyAt(i).in("code")), figure(f.DueStart, at.in("due_at_start")), figure(f.HeldStart, at.in("held_at_start")),
			figure(f.FellDue, at.in("fell_due_less_refreshed")), figure(f.ByPolicy, at.in("deleted_by_policy")), figure(f.ByUsers, at.in("deleted_by_users")),
			figure(f.DueEnd, at.in("due_at_end")), figure(f.HeldEnd, at.in("held_at_end")), figure(p.Quarantine, policyAt(i).in("quarantined_at_end")),
		}})
	}
	return Section{ID: "rollforward", Title: "Roll-forward", Lead: rollForwardLead, Blocks: []Block{{Table: t}}}
}

func redactedPolicy(p *report.RedactedPolicy, i int) Section {
	at := policyAt(i)
	s := Section{ID: policyID(i), Title: upper(p.Code), Lead: gradeWords[p.Verdict] + ": " + redactedSentence(p)}
	s.of = p.Code
	s.table(Table{
		Name: "policy-findings", Caption: "Why the verdict", Columns: []Column{{Name: "finding"}, {Name: "weight"}, {Name: "what it means"}},
		Rows: rows(p.Findings, func(j int, f *report.RedactedFinding) []Cell {
			return []Cell{{Text: f.About.Title()}, graded(f.Grade, at.in("findings", j, "grade")), {Text: strings.TrimSpace(f.About.Means() + " " + f.Why.Text())}}
		}),
	})
	d, at := &p.Deleted, at.in("deleted")
	days := rows(d.Days, func(j int, x *report.RedactedDay) []Cell {
		at := at.in("days", j)
		return []Cell{
			text(x.Day, at.in("day")).whole(), figure(x.ByRow, at.in("by_row")), figure(x.ByDrop, at.in("by_drop")), figure(x.Soft, at.in("soft")),
			figure(x.Cascaded, at.in("cascaded")),
		}
	})
	total := Row{"sum", []Cell{
		{Text: "all"},
		figure(d.ByRow, at.in("by_row")),
		figure(d.ByDrop, at.in("by_drop")),
		figure(d.Soft, at.in("soft")),
		figure(d.Cascaded, at.in("cascaded")),
	}}
	s.table(Table{Name: "policy-day", Caption: "Deleted, by day", Columns: append([]Column{{Name: "day"}}, deletedColumns...), Rows: append(days, total)})
	return s
}
