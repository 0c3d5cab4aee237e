package page

import (
	"fmt"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// Answer is the answer to one of a reader's first questions.
type Answer struct {
	Question string
	Tone     Tone
	Word     string // yes, no or not known; "" if the question has another kind of answer
	Text     string
	Items    []string
	Links    []Link
}

// Link is a link to a section of the page.
type Link struct{ ID, Title string }

// short answers a reader's first questions for all policies of the report.
func (m *maker) short() []Answer {
	return []Answer{m.deletedWrongly(), m.deletedByOthers(), m.stillThere(), m.kept(), m.first()}
}

// answer is yes if something was found, no if nothing can have been missed, and otherwise not known.
func answer(question string, yes bool, found, open []string, links ...Link) Answer {
	a := Answer{Question: question, Tone: Pass, Word: "No", Links: links}
	switch {
	case yes:
		a.Tone, a.Word = Fail, "Yes"
	case len(open) > 0:
		a.Tone, a.Word = Open, "Not known"
	}
	var said []string
	if len(found) > 0 {
		said = append(said, strings.Join(found, "; ")+".")
	}
	if len(open) > 0 {
		said = append(said, "Nobody can say "+strings.Join(open, ", nor ")+".")
	}
	a.Text = strings.Join(said, " ")
	return a
}

// lines adds up lines that must be zero, and collects those that were not assessed.
func (m *maker) lines(of ...report.About) (found, open []string) {
	if len(m.order) == 0 {
		return nil, []string{"anything: no policy is in the report"}
	}
	for _, about := range of {
		var wrongOf, openOf []string
		n := int64(0)
		for _, i := range m.order {
			p := &m.Policies[i]
			for j := range p.Zero {
				if p.Zero[j].About != about || noFloor(p, &p.Zero[j]) {
					continue
				}
				f := p.Zero[j].Figure
				if seen := f.Least(); seen > 0 {
					n += seen
					wrongOf = append(wrongOf, p.Name)
				}
				if f.Value == nil {
					openOf = append(openOf, p.Name)
				}
			}
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%s %s (%s)", counted(n, "row"), wrong[about], some(wrongOf)))
		}
		if len(openOf) > 0 {
			open = append(open, fmt.Sprintf("%s (%s)", asked[about], some(openOf)))
		}
	}
	return found, open
}

// unseen lists where there may be deletions that the report does not have.
func (m *maker) unseen() (open []string) {
	for _, about := range []report.About{report.TablesUncovered, report.NotDescribed} {
		if of := m.having(about); len(of) > 0 {
			open = append(open, fmt.Sprintf("%s (%s)", asked[about], some(of)))
		}
	}
	return open
}

// having returns the policies with a finding.
func (m *maker) having(about report.About) (names []string) {
	for _, i := range m.order {
		p := &m.Policies[i]
		for j := range p.Findings {
			if p.Findings[j].About == about {
				names = append(names, p.Name)
				break
			}
		}
	}
	return names
}

func (m *maker) deletedWrongly() Answer {
	found, open := m.lines(report.DeletedNotDue, report.DeletedHeld, report.ObservedNotClaimed, report.Unverified, report.BelowFloor)
	open = append(open, m.unseen()...)
	yes := len(found) > 0
	var held []string
	for _, i := range m.order {
		if p := &m.Policies[i]; p.Users.Held.Value == nil {
			held = append(held, p.Name)
		}
	}
	if len(held) > 0 {
		open = append(open, fmt.Sprintf("whether others deleted rows under a legal hold (%s)", some(held)))
	}
	a := answer("Was anything deleted that should not have been?", yes, found, open, Link{"zero", "Lines that must be zero"})
	if certain, _ := m.lines(report.DeletedNotDue, report.DeletedHeld, report.BelowFloor); yes && len(certain) == 0 {
		a.Word = "Possibly" // nobody knows whether rows that went without a claim that proves it were due
	}
	if rows, _ := m.others(); rows > 0 {
		a.Text = strings.TrimSpace(a.Text + m.judged(rows))
	}
	return a
}

// judged says how many of the rows that others deleted were not due.
func (m *maker) judged(rows int64) (text string) {
	var due, notDue int64
	for i := range m.Policies {
		u := &m.Policies[i].Users
		due, notDue = due+u.Due.Least(), notDue+u.NotDue.Least()
	}
	if due+notDue == 0 {
		return " Of rows that others deleted the log does not say whether they were due."
	}
	text = fmt.Sprintf(" Of the rows that others deleted %s were due, and %s were not due yet", plaintext.Number(due), plaintext.Number(notDue))
	if rest := rows - due - notDue; rest > 0 {
		text += fmt.Sprintf("; of %s the log does not say it", plaintext.Number(rest))
	}
	return text + "."
}

// others counts the rows that others than policies deleted from the report's tables, and the truncates.
func (m *maker) others() (rows, truncates int64) {
	for i := range m.Tables {
		t := &m.Tables[i]
		rows, truncates = rows+t.User+t.Unverified, truncates+t.Truncates
	}
	return rows, truncates
}

// byPolicies counts the rows that policies deleted, including cascades and dropped partitions.
func (m *maker) byPolicies() (rows int64) {
	for i := range m.Tables {
		rows += m.Tables[i].System + m.Tables[i].ByDrop
	}
	return rows
}

func (m *maker) deletedByOthers() Answer {
	rows, truncates := m.others()
	unverified := int64(0)
	var from []string
	for i := range m.Tables {
		t := &m.Tables[i]
		unverified += t.Unverified
		if n := t.User + t.Unverified; n > 0 {
			from = append(from, t.Table+" "+plaintext.Number(n))
		}
	}
	var found []string
	if rows > 0 {
		found = append(found, fmt.Sprintf("%s: %s by users, and %s in the name of Lapse without its key (%s)", counted(rows, "row"), plaintext.Number(rows-unverified), plaintext.Number(unverified), some(from)))
	}
	if truncates > 0 {
		found = append(found, counted(truncates, "truncation")+", and the write-ahead log does not say of how many rows")
	}
	open := m.unseen()
	if n := m.Coverage.Gaps.Len(); n > 0 {
		open = append(open, "what was deleted in "+counted(n, "gap")+" of the log, which nobody read")
	}
	a := answer("Did anybody but the policies delete rows, and how many?", rows+truncates > 0, found, open, Link{"deletions", "Deletions"})
	if n := m.byPolicies(); n > 0 {
		a.Text = strings.TrimSpace(a.Text + " The policies deleted " + counted(n, "row") + ".")
	}
	if a.Tone == Fail && unverified == 0 { // users may delete rows of their own tables
		a.Tone = Warn
	}
	if n := m.Coverage.Unproven.Len(); n > 0 {
		a.Text = strings.TrimSpace(a.Text + fmt.Sprintf(" In %s somebody claimed deletions in the name of Lapse that none of its keys proves.", counted(n, "transaction")))
		a.Links = append(a.Links, Link{"coverage", "Coverage"})
		if a.Tone == Pass {
			a.Tone = Warn
		}
	}
	return a
}

func (m *maker) stillThere() Answer {
	found, open := m.lines(report.Overdue)
	yes := len(found) > 0
	claimed, claims := m.lines(report.ClaimedNotObserved)
	found = append(found, claimed...)
	if open = append(open, claims...); len(claimed) > 0 {
		open = append(open, "whether those rows are still there")
	}
	a := answer("Is anything still there that should be gone?", yes, found, open, Link{"zero", "Lines that must be zero"})
	counts := "by the counts of the program that deletes"
	if first := m.oldestCount(); yes && first != "" {
		counts += ", the oldest of " + moment(first) + " UTC"
	}
	a.Text = strings.TrimSpace(a.Text + " This is of the tables, " + counts + "; of backups, archives and copies the log says nothing.")
	return a
}

// oldestCount is when the last count of a policy was taken, of the policy that was not counted for the longest time; "" if none was counted.
func (m *maker) oldestCount() (oldest report.Instant) {
	for _, i := range m.order {
		last := report.Instant("")
		for _, s := range m.Policies[i].Snapshots.Items {
			if s.Counted != "" && s.NotCounted == "" {
				last = s.Taken
			}
		}
		if last != "" && (oldest == "" || last < oldest) {
			oldest = last
		}
	}
	return oldest
}

func (m *maker) kept() Answer {
	type key struct{ matter, table string }
	var order []key
	held := map[key][]string{}
	for i := range m.Holds.Items {
		h := &m.Holds.Items[i]
		if h.State == "released" {
			continue
		}
		k := key{h.Matter, h.Table}
		if held[k] == nil {
			order = append(order, k)
		}
		what := "rows by a condition"
		if h.Keys > 0 {
			what = counted(h.Keys, "key")
		}
		held[k] = append(held[k], what)
	}
	var found, open, of []string
	for _, k := range order {
		of = append(of, fmt.Sprintf("%s: %s of %s", k.matter, strings.Join(held[k], " and "), k.table))
	}
	if len(of) > 0 {
		found = append(found, "under legal holds, by matter: "+some(of)+" (a key may have no row, or one that is not due)")
	}
	if m.Holds.More > 0 {
		open = append(open, "here what the "+counted(m.Holds.More, "hold")+" keep that the report does not list")
	}
	rows := int64(0)
	var in, unstated []string
	for _, i := range m.order {
		p := &m.Policies[i]
		switch n := p.Quarantine.AtEnd.Least(); {
		case p.Quarantine.AtEnd.Value == nil:
			unstated = append(unstated, p.Name)
		case n > 0:
			rows += n
			in = append(in, p.Name)
		}
	}
	if rows > 0 {
		found = append(found, fmt.Sprintf("in quarantine, because deleting them failed: %s (%s)", counted(rows, "row"), some(in)))
	}
	if len(unstated) > 0 {
		open = append(open, fmt.Sprintf("what is in quarantine (%s)", some(unstated)))
	}
	a := answer("What is being kept on purpose?", len(found) > 0, found, open, Link{"holds", "Holds"})
	switch a.Word {
	case "Yes":
		a.Tone, a.Word, a.Text = Warn, "Something", upper(a.Text)
	case "No":
		a.Word, a.Text = "Nothing", "No legal hold is in force at the end of the period, and no row is in quarantine."
	}
	return a
}

// line is the answer's line in a CSV.
func (a *Answer) line() string {
	parts := []string{a.Text}
	if a.Word != "" {
		parts = []string{a.Word + ".", a.Text}
	}
	return strings.TrimSpace(strings.Join(append(parts, a.Items...), " "))
}
