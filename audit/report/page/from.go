package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// maker makes a report's document.
type maker struct {
	*report.Report
	witnesses []report.Witness
	order     []int // the policies' order: the worst verdict first
}

// New makes a report's document. build names the program: the same build makes the same bytes. The witnesses are those that the report's maker
// named; they are not part of the report, and the page says so.
func New(r *report.Report, build string, witnesses []report.Witness) *Document {
	m := &maker{Report: r, witnesses: witnesses, order: make([]int, len(r.Policies))}
	for i := range m.order {
		m.order[i] = i
	}
	slices.SortStableFunc(m.order, func(a, b int) int {
		return cmp.Compare(slices.Index(grades, r.Policies[a].Verdict), slices.Index(grades, r.Policies[b].Verdict))
	})
	d := &Document{
		Title: "Retention report of " + plaintext.Line(r.Log.Database), Lead: purpose, Build: build, Form: formReport, Witnesses: witnesses, Facts: m.facts(), Short: m.short(), Words: glossary, Unknown: m.unknown(), Verify: steps(r.Log.PublicKey, witnesses),
		Sections: []Section{m.zeroLines(), m.rollForward(), m.deletions()},
	}
	for _, i := range m.order {
		p := &r.Policies[i]
		d.Verdicts = append(d.Verdicts, verdict(p.Verdict, policyAt(i), text(p.Name, policyAt(i).in("name")), sentence(p), policyID(i)))
	}
	for _, i := range m.order {
		d.Sections = append(d.Sections, m.policy(i))
	}
	d.Sections = append(d.Sections, m.people(), m.coverage())
	return d
}

func policyAt(i int) place            { return place("").in("policies", i) }
func policyID(i int) string           { return fmt.Sprintf("policy-%d", i+1) }
func (c Cell) plain() Cell            { c.Tone = None; return c }
func (c Cell) with(after string) Cell { c.Text += after; return c }

// facts returns the facts about the whole report.
func (m *maker) facts() []Fact {
	l := &m.Log
	root := place("")
	return []Fact{
		{"Database", text(l.Database, root.in("log", "database"))},
		{"Period", period(m.Period)},
		{"Policies", Cell{Text: m.tally()}},
		{"Log", text(l.Name, root.in("log", "name"))},
		{"Log before the period", opening(l.Opening, noOpening)},
		{"Log at its end", checkpoint(&l.Closing)},
		{"Witnesses", m.witnessed()},
	}
}

func period(p report.Period) Cell {
	return Cell{Text: fmt.Sprintf("from %s to before %s UTC", moment(p.From), moment(p.To))}
}

const noOpening = "none: the log began in the period"

// opening describes the checkpoint before the period, or says why there is none.
func opening(c *report.Checkpoint, none string) Cell {
	if c == nil {
		return Cell{Text: none}
	}
	return checkpoint(c)
}

// verdict makes the verdict of the policy at a place.
func verdict(g report.Grade, at place, subject Cell, sentence, link string) Verdict {
	return Verdict{Tone: tones[g], Word: graded(g, at.in("verdict")).plain(), Subject: subject, Sentence: sentence, Link: link}
}

// witnessed says which witnesses have seen the log. The report's maker found that out: the log's records do not say it.
func (m *maker) witnessed() Cell {
	if len(m.witnesses) == 0 {
		return Cell{Text: "none was named when this page was made: it does not say that anybody else has seen this log"}
	}
	var all []string
	for _, w := range m.witnesses {
		if w.Records == 0 {
			all = append(all, plaintext.Line(w.Name)+" has cosigned nothing")
			continue
		}
		all = append(all, fmt.Sprintf("%s has cosigned %s, %s UTC", plaintext.Line(w.Name), counted(w.Records, "record"), moment(w.At)))
	}
	return Cell{Text: strings.Join(all, "; ")}
}

func checkpoint(c *report.Checkpoint) Cell {
	return Cell{Text: fmt.Sprintf("the checkpoint of %s, root %s", counted(c.Records, "record"), c.Root)}
}

// tally counts the policies by verdict.
func (m *maker) tally() string {
	var parts []string
	for _, g := range grades {
		n := 0
		for i := range m.Policies {
			if m.Policies[i].Verdict == g {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(gradeWords[g])))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	said := strings.Join(parts, ", ")
	if len(m.Only) > 0 {
		said += "; others were not asked for"
	}
	return said
}

// sentence describes a policy's verdict in a sentence.
func sentence(p *report.Policy) string {
	deleted := counted(p.Deleted.Rows, "row") + " deleted"
	if p.Deleted.Soft > 0 {
		deleted = counted(p.Deleted.Rows, "row") + " deleted and " + counted(p.Deleted.Soft, "row") + " overwritten"
	}
	if n := p.Deleted.Cascaded; n > 0 {
		deleted += ", with " + counted(n, "row") + " of other tables by cascade"
	}
	deleted += byOthers(&p.Users)
	if len(p.Findings) == 0 {
		return deleted + "; every line that must be zero is zero."
	}
	return deleted + "; " + because(p.Findings) + "."
}

// byOthers describes, as part of a sentence, what others deleted from the policy's table. The rows that went in the name of Lapse without its
// key are a finding of their own.
func byOthers(u *report.Users) string {
	text, n := "", u.Deleted.Least()
	switch {
	case u.Deleted.Value != nil && u.Unverified.Value != nil:
		if n -= u.Unverified.Least(); n > 0 {
			text = fmt.Sprintf(", and %s by users", plaintext.Number(n))
		}
	case u.Deleted.Value != nil && n > 0:
		text = fmt.Sprintf(", and %s by others", plaintext.Number(n))
	case n > 0:
		text = fmt.Sprintf(", and %s or more by others", plaintext.Number(n))
	}
	if u.Truncates.Least() > 0 {
		text += ", and its table truncated by others"
	}
	return text
}

// because lists the findings. If the policy fails, it also names what could not be assessed; of warnings it only gives the number.
func because(all []report.Finding) string {
	var text []string
	for _, grade := range []report.Grade{report.Fail, report.Unknown, report.Warn} {
		var parts []string
		for i := range all {
			if f := &all[i]; f.Grade == grade {
				parts = append(parts, said(f))
			}
		}
		switch n := int64(len(parts)); {
		case n == 0:
		case grade == report.Warn && len(text) > 0:
			text = append(text, "and "+counted(n, "warning"))
		default:
			text = append(text, reasons(grade, parts))
		}
	}
	return strings.Join(text, "; ")
}

// What no report can know.
const (
	personsUnknown = "Who deleted the rows that no policy deleted, and whether these were due: the write-ahead log names transactions, not logins."
	copiesUnknown  = "Whether a deleted row is gone from backups, from archived write-ahead log, from replicas or from copies: deleted from the table is not erased from those."
	countsUnknown  = "Whether the counts of what was due are right: they are the word of the program that deletes. Nothing in the write-ahead log shows a count."
)

// unknown lists what the report does not know, each reason once.
func (m *maker) unknown() []string {
	type reason struct {
		about report.About
		why   report.Reason
	}
	var of grouped[reason]
	for _, i := range m.order {
		p := &m.Policies[i]
		for j := range p.Zero {
			if why := p.Zero[j].Figure.NotAssessed; why != "" {
				of.add(reason{p.Zero[j].About, why}, p.Name)
			}
		}
		for j := range p.Findings {
			if f := &p.Findings[j]; f.Grade == report.Unknown && f.Why == "" {
				of.add(reason{f.About, ""}, p.Name)
			}
		}
	}
	var all []string
	for _, key := range of.order {
		text, why := asked[key.about], key.why.Text()
		if text == "" {
			text = lower(key.about.Title())
		}
		if why == "" {
			why = key.about.Means()
		}
		all = append(all, fmt.Sprintf("%s (%s): %s", upper(text), some(of.names[key]), why))
	}
	if n := m.Coverage.Gaps.Len(); n > 0 {
		all = append(all, fmt.Sprintf("What was deleted in %s, which nobody read.", counted(n, "gap")))
	}
	if rows, truncates := m.others(); rows+truncates > 0 {
		all = append(all, personsUnknown)
	}
	return append(all,
		copiesUnknown,
		countsUnknown,
		"Whether somebody with the server and its keys wrote a log that is not true. Witnesses show that it only grew, not that it is complete.")
}

// grouped holds the names of the policies by key, in the order in which they come.
type grouped[K comparable] struct {
	order []K
	names map[K][]string
}

// add adds a name, unless it is the last one.
func (g *grouped[K]) add(key K, name string) {
	all, found := g.names[key]
	if !found {
		g.order = append(g.order, key)
	}
	if g.names == nil {
		g.names = map[K][]string{}
	}
	if len(all) == 0 || all[len(all)-1] != name {
		g.names[key] = append(all, name)
	}
}

// some lists the first few names.
func some(names []string) string {
	const most = 5
	shown := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		shown = append(shown, plaintext.Line(name))
	}
	said := strings.Join(shown, ", ")
	if more := len(names) - most; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// steps lists the commands that check the report.
func steps(key string, witnesses []report.Witness) []Step {
	if key == "" || !quotable(key) {
		key = "NAME+HASH+KEY"
	}
	whole := Step{"That the log is whole and signed, from an export of it, with its public key. EXPORT is the folder that lapse events --export makes. Get the key from the log’s owner too, in another way than by this file, and compare the two:", "lapse verify --dir EXPORT --public-key '" + key + "'"}
	for i, w := range witnesses {
		if i == 0 {
			whole.Text = strings.TrimSuffix(whole.Text, ":") + ". Ask each witness for its own:"
		}
		if name := w.Name; quotable(name) {
			whole.Command += " --witness '" + name + "+HASH+KEY'"
		}
	}
	return []Step{
		whole,
		{"That this report is what the log says, and that its tables say what its JSON says:", "lapse verify report.html --dir EXPORT"},
		{"Without the log, that the owner of its key has signed this report:", "lapse verify report.html --public-key '" + key + "'"},
	}
}

// quotable reports whether a shell takes the text as it is between single quotes.
func quotable(text string) bool { return !strings.Contains(text, "'") && plaintext.Line(text) == text }
