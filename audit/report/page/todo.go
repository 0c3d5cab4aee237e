package page

import (
	"slices"
	"strings"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// todo says what to do about a finding, depending on its reason if that matters.
var todo = map[report.About]string{
	report.ClaimedNotObserved: "Compare the transactions listed with the policy’s runs: rows that a batch claims may still be there.",
	report.ObservedNotClaimed: "Find out what else deletes rows in the batches listed: a trigger or a rule of the table.",
	report.DeletedNotDue:      "Stop deletion with lapse pause --all until the transactions listed say why rows went too early.",
	report.DeletedHeld:        "Stop deletion with lapse pause --all, and tell who placed the hold.",
	report.Unverified:         "Read docs/alarm.md, and find out who ran the transactions listed.",
	report.Overdue:            "Find out why lapse status shows the policy behind: it is paused, too slow, or its batches fail.",
	report.Gaps:               "Read in docs/runbook.md why a part of the write-ahead log was lost, and ask who deleted rows in that time.",
	report.BelowFloor:         "Compare the policy’s interval with the floor of its table in lapse.yaml.",
	report.NoEndSnapshot:      "Keep lapse serve running, or run lapse run --once daily: then rows that are due are counted each day.",
	report.TablesUncovered:    "Ask who took the table or the partition out of the publication, and what became of its rows.",
	report.NotDescribed:       "Find out who deleted in the name of a policy that the log does not have.",
}

var todoWhy = map[report.Reason]string{
	report.EvidenceClaimed:  "Set evidence: due in the policy, so that the write-ahead log has each deleted row’s due time.",
	report.DropsNotSent:     "Delete by row where this has to be known: of a dropped partition the server publishes no row.",
	report.SomeUnknown:      "Look for rows without a due time that can be read, and for changes of the table’s replica identity.",
	report.KeysNotInLog:     "Ask who placed the hold to compare the held rows with the table: the log has no key of a held row.",
	report.NoSnapshot:       todo[report.NoEndSnapshot],
	report.NoLatitude:       "Set latitude: in the policy, so that it is said how late is too late.",
	report.QuarantineInside: "Look at the rows with lapse quarantine list, and mend why they cannot be deleted.",
	report.ResultMissing:    "Look at the batch that has no result of its own in the log.",
	report.FloorNotCompared: "Use evidence: due and an interval that is as long as the floor: then the two can be compared.",
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
	a := Answer{Question: "What should be done first?", Tone: Pass, Word: "Nothing", Text: "No line that must be zero has anything, and each was assessed."}
	if len(m.order) == 0 {
		a.Text = "No policy is in the report."
	}
	var of grouped[string]
	for _, grade := range []report.Grade{report.Fail, report.Unknown} {
		for _, about := range urgency {
			for _, i := range m.order {
				p := &m.Policies[i]
				for j := range p.Findings {
					if f := &p.Findings[j]; f.Grade == grade && urgencyOf(f.About) == about {
						of.add(whatToDo(f), p.Name)
					}
				}
			}
		}
		if len(of.order) > 0 && a.Tone == Pass {
			a.Tone, a.Word, a.Text = tones[grade], "", "In this order:"
		}
	}
	for _, item := range of.order {
		a.Items = append(a.Items, strings.TrimSuffix(item, ".")+" ("+some(of.names[item])+").")
	}
	for _, i := range m.order[:min(len(m.order), 3)] {
		if p := &m.Policies[i]; p.Verdict == report.Fail || p.Verdict == report.Unknown {
			a.Links = append(a.Links, Link{policyID(i), "Policy " + plaintext.Line(p.Name)})
		}
	}
	return a
}

func whatToDo(f *report.Finding) string {
	if text := todoWhy[f.Why]; text != "" && f.Grade == report.Unknown {
		return text
	}
	return todo[f.About]
}
