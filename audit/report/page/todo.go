package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// task is what to do about a finding, and by whom.
type task struct{ who, what string }

// Those who can do something.
const (
	operators = "The people who run the database"
	owner     = "The policy’s owner" // with the name that the policy gives, if any
	reader    = "You"
)

// todo is what to do about a finding, depending on its reason if that matters.
var todo = map[report.About]task{
	report.ClaimedNotObserved: {operators, "compare the transactions in the policy’s part below with the policy’s runs: rows that it says it deleted may still be there."},
	report.ObservedNotClaimed: {operators, "find out what else deletes rows in the transactions in the policy’s part below: a trigger or a rule of the table."},
	report.DeletedNotDue:      {operators, "stop deletion with lapse pause --all until the transactions in the policy’s part below say why rows went too early."},
	report.DeletedHeld:        {operators, "stop deletion with lapse pause --all, and tell the person who placed the hold."},
	report.Unverified:         {operators, "read docs/alarm.md, and find out who ran the transactions in the policy’s part below."},
	report.Overdue:            {operators, "find out why lapse status shows the policy behind: it is paused, too slow, or its deletions fail."},
	report.Gaps:               {operators, "read in docs/runbook.md why a part of the write-ahead log was lost, and ask who deleted rows in that time."},
	report.BelowFloor:         {owner, "compare the policy’s interval with the floor of its table in lapse.yaml."},
	report.NoEndSnapshot:      {operators, "keep lapse serve running, or run lapse run --once daily: then rows that are due are counted each day."},
	report.TablesUncovered:    {operators, "ask who took the table or the partition out of the publication, and what became of its rows."},
	report.NotDescribed:       {operators, "find out who deleted in the name of a policy that the log does not have."},
}

var todoWhy = map[report.Reason]task{
	report.EvidenceClaimed:  {owner, "set evidence: due in the policy, so that the write-ahead log has each deleted row’s due time."},
	report.DropsNotSent:     {owner, "delete by row where this has to be known: of a dropped partition the server publishes no row."},
	report.SomeUnknown:      {operators, "look for rows without a due time that can be read, and for changes of the table’s replica identity."},
	report.KeysNotInLog:     {reader, "ask the person who placed the hold (its matter and login are in the table of holds) to compare the held rows with the table: the log has no key of a held row."},
	report.NoSnapshot:       todo[report.NoEndSnapshot],
	report.NoLatitude:       {owner, "set latitude: in the policy, the grace period, so that it is said how late is too late."},
	report.QuarantineInside: {operators, "look at the rows with lapse quarantine list, and mend why they cannot be deleted."},
	report.ResultMissing:    {operators, "look at the batch that has no result of its own in the log."},
	report.FloorNotCompared: {owner, "use evidence: due and an interval that is as long as the floor: then the two can be compared."},
}

// urgency is the order in which findings want something done: rows that may be gone wrongly come before rows that are late. "" is for all others.
var urgency = []report.About{
	report.DeletedHeld, report.DeletedNotDue, report.BelowFloor, report.Unverified, report.ObservedNotClaimed, report.NotDescribed, report.Gaps, "", report.Overdue,
}

func urgencyOf(about report.About) report.About {
	if slices.Contains(urgency, about) {
		return about
	}
	return ""
}

// first lists what to do, the worst first: one sentence for each kind of finding.
func (m *maker) first() Answer {
	a := Answer{Question: "What should be done first, and by whom?", Tone: Pass, Word: "Nothing", Text: "No line that must be zero has anything, and each was assessed."}
	if len(m.order) == 0 {
		a.Text = "No policy is in the report."
	}
	var of grouped[task]
	for _, grade := range []report.Grade{report.Fail, report.Unknown} {
		for _, about := range urgency {
			for _, i := range m.order {
				p := &m.Policies[i]
				for j := range p.Findings {
					if f := &p.Findings[j]; f.Grade == grade && urgencyOf(f.About) == about {
						of.add(whatToDo(f, p), p.Name)
					}
				}
			}
		}
		if len(of.order) > 0 && a.Tone == Pass {
			a.Tone, a.Word, a.Text = tones[grade], "", "In this order:"
		}
	}
	for _, item := range of.order {
		a.Items = append(a.Items, fmt.Sprintf("%s: %s (%s).", item.who, strings.TrimSuffix(item.what, "."), some(of.names[item])))
	}
	for _, i := range m.order[:min(len(m.order), 3)] {
		if p := &m.Policies[i]; p.Verdict == report.Fail || p.Verdict == report.Unknown {
			a.Links = append(a.Links, Link{policyID(i), "Policy " + plaintext.Line(p.Name)})
		}
	}
	return a
}

// whatToDo is what to do about a finding of a policy.
func whatToDo(f *report.Finding, p *report.Policy) task {
	t, found := todoWhy[f.Why]
	if !found || f.Grade != report.Unknown {
		t = todo[f.About]
	}
	if t.who == owner {
		t.who += " (" + cmp.Or(plaintext.Line(p.Owner), "it names none") + ")"
	}
	return t
}
