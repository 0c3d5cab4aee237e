package page

import (
	"fmt"
	"slices"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// The forms of a page. A page names its form, so that it can be made again from its JSON.
const (
	formReport      = "report"
	formCertificate = "certificate"
	formOfMatter    = "certificate of matter " // followed by the matter
)

// NewCertificate makes one page for the records: on the rows of one policy in the period, on what one run of it deleted, or on rows that are held
// for a matter. matter is empty for a policy and for a run; the report is then of one policy. It refuses a report without any of these.
func NewCertificate(r *report.Report, build, matter string) (*Document, error) {
	m := &maker{Report: r, order: []int{}}
	d := &Document{Build: build, Form: formCertificate, Lines: true, Verify: steps(r.Log.PublicKey, nil)}
	root := place("")
	d.Facts = []Fact{
		{"Database", text(r.Log.Database, root.in("log", "database"))},
		{"Period", period(r.Period)},
	}
	if matter != "" {
		d.Form, d.Title = formOfMatter+matter, "Certificate of preservation"
		if err := m.matter(d, matter); err != nil {
			return nil, err
		}
	} else {
		if r.Run != nil {
			m.runOf(d)
		}
		if len(r.Policies) != 1 {
			return nil, fmt.Errorf("a certificate is of one policy, and the report has %s: name one", counted(int64(len(r.Policies)), "policy"))
		}
		m.order, d.Title = []int{0}, "Certificate of disposition"
		if r.Run == nil {
			m.disposition(d)
		}
	}
	d.Facts = append(d.Facts, Fact{"By the log", text(r.Log.Name, root.in("log", "name"))}, Fact{"after", opening(r.Log.Opening, "the beginning of the log")}, Fact{"up to", checkpoint(&r.Log.Closing)})
	for _, i := range m.order {
		p := &r.Policies[i]
		d.Verdicts = append(d.Verdicts, verdict(p.Verdict, policyAt(i), text(p.Name, policyAt(i).in("name")), sentence(p), ""))
	}
	d.Unknown = m.unknown()
	return d, nil
}

// disposition describes what a policy deleted.
func (m *maker) disposition(d *Document) {
	p, at := &m.Policies[0], policyAt(0)
	of := at.in("deleted")
	say := func(name string, c Cell) { d.Facts = append(d.Facts, Fact{name, c}) }
	say("Policy", text(p.Name, at.in("name")))
	say("Table", text(p.Table, at.in("table")))
	if n := len(p.Versions.Items); n > 0 {
		say("Rows were due by", Cell{Text: terms(&p.Versions.Items[n-1])})
	}
	if p.Basis != "" {
		say("Basis", text(p.Basis, at.in("basis")))
	}
	if p.Owner != "" {
		say("Owner", text(p.Owner, at.in("owner")))
	}
	say("Rows deleted", count(p.Deleted.Rows, of.in("rows")))
	say("of them one by one", count(p.Deleted.ByRow, of.in("by_row")))
	say("with whole partitions", count(p.Deleted.ByDrop, of.in("by_drop")))
	say("Rows overwritten", count(p.Deleted.Soft, of.in("soft")))
	say("Rows of other tables", count(p.Deleted.Cascaded, of.in("cascaded")))
	if days := p.Deleted.Days; len(days) > 0 {
		say("First day", text(days[0].Day, of.in("days", 0, "day")))
		say("Last day", text(days[len(days)-1].Day, of.in("days", len(days)-1, "day")))
	}
	say("In transactions", count(p.Deleted.Batches, of.in("batches")))
}

// runOf describes what one run deleted.
func (m *maker) runOf(d *Document) {
	r, at := m.Run, place("").in("run")
	say := func(name string, c Cell) { d.Facts = append(d.Facts, Fact{name, c}) }
	say("Run", text(r.Run, at.in("run")))
	say("Policy", text(r.Policy, at.in("policy")))
	say("Version", count(r.Version, at.in("version")))
	for i := range m.Policies {
		p := &m.Policies[i]
		if p.Name != r.Policy {
			continue
		}
		say("Table", text(p.Table, policyAt(i).in("table")))
		for j := range p.Versions.Items {
			if v := &p.Versions.Items[j]; v.Version == r.Version {
				say("Rows were due by", Cell{Text: terms(v)})
			}
		}
	}
	say("At (UTC)", instant(r.Cutoff, at.in("cutoff")))
	say("First commit (UTC)", instant(r.First, at.in("first")))
	say("Last commit (UTC)", instant(r.Last, at.in("last")))
	say("Rows deleted one by one", count(r.ByRow, at.in("by_row")))
	say("of them due, by the auditor", count(r.Due, at.in("due")))
	say("and not due", count(r.NotDue, at.in("not_due")))
	say("Rows with whole partitions", count(r.ByDrop, at.in("by_drop")))
	say("Rows overwritten", count(r.Soft, at.in("soft")))
	say("Rows of other tables", count(r.Cascaded, at.in("cascaded")))
	say("In transactions", count(r.Batches, at.in("batches")))
	say("that claim other than was seen", count(r.Mismatches, at.in("mismatches")))
	say("From the log’s record", ref(r.FirstLeaf, at.in("first_leaf")))
	say("to record", ref(r.LastLeaf, at.in("last_leaf")))
}

// matter describes what was held for the matter.
func (m *maker) matter(d *Document, matter string) error {
	root := place("")
	d.Facts = append(d.Facts, Fact{"Matter", Cell{Text: plaintext.Line(matter)}})
	found := false
	var touched []string
	for i := range m.Holds.Items {
		h, at := &m.Holds.Items[i], root.in("holds", "items", i)
		if h.Matter != matter {
			continue
		}
		found = true
		touched = append(touched, h.Policies...)
		held := "by a condition"
		if h.Keys > 0 {
			held = counted(h.Keys, "key")
		}
		d.Facts = append(d.Facts, Fact{fmt.Sprintf("Hold %d", h.Hold), text(h.Table, at.in("table"))}, Fact{"what is held", Cell{Text: held}},
			Fact{"placed (UTC)", instant(h.Placed, at.in("placed"))}, Fact{"by", text(h.By, at.in("by"))},
			Fact{"effective from", text(h.Position, at.in("position"))}, Fact{"state at the end", text(h.State, at.in("state"))}, Fact{"digest", text(h.Digest, at.in("digest"))})
	}
	if !found {
		return fmt.Errorf("the report has no hold for the matter %q", matter)
	}
	for i := range m.Policies {
		if slices.Contains(touched, m.Policies[i].Name) {
			m.order = append(m.order, i)
		}
	}
	return nil
}

// Again makes the document of a page once more, in the form that the page names.
func (e *Embedded) Again(r *report.Report) (*Document, error) {
	switch {
	case e.Form == formReport:
		return New(r, e.Build, e.Witnesses), nil
	case e.Form == formCertificate:
		return NewCertificate(r, e.Build, "")
	case strings.HasPrefix(e.Form, formOfMatter):
		return NewCertificate(r, e.Build, strings.TrimPrefix(e.Form, formOfMatter))
	}
	return nil, fmt.Errorf("it is a %q, which this program does not know", e.Form)
}
