package page

import (
	"strings"
	"testing"

	"lapse/audit/report"
)

func words(d *Document) string {
	var all []string
	for i := range d.Short {
		all = append(all, d.Short[i].Word)
	}
	return strings.Join(all, ", ")
}

func TestTheFirstQuestionsAreAnsweredOverAllPolicies(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	d := New(r, "test", nil)
	if is := words(d); is != "Yes, Yes, Not known, Something, " {
		t.Errorf("of the example: %s", is)
	}
	for i, want := range []string{"2 rows gone under a claim that does not verify (carts", "public.sessions 41", "by the executor’s counts", "LIT-2026-4: 2 keys of public.sessions", "In this order"} {
		if !strings.Contains(d.Short[i].Text, want) {
			t.Errorf("%s: %s", d.Short[i].Question, d.Short[i].Text)
		}
	}
	if first := d.Short[4].Items; len(first) < 3 || !strings.Contains(strings.Join(first, ""), "docs/alarm.md") {
		t.Errorf("what to do: %q", first)
	}

	quiet := r.Policies[3] // passes
	r.Policies, r.Tables, r.Coverage.Gaps, r.Coverage.Unproven = []report.Policy{quiet}, nil, report.List[report.Gap]{}, report.List[report.Transaction]{}
	r.Holds = report.List[report.Hold]{}
	if is := words(New(r, "test", nil)); is != "No, No, No, Nothing, Nothing" {
		t.Errorf("of a policy that passes: %s", is)
	}
	r.Coverage.Gaps.Add(report.Gap{Reason: "slot"})
	for i := range r.Policies[0].Zero {
		r.Policies[0].Zero[i].Figure = report.NotAssessed(report.InGap)
	}
	r.Policies[0].Quarantine.AtEnd = report.NotAssessed(report.NotStated)
	if is := words(New(r, "test", nil)); is != "Not known, Not known, Not known, Not known, Nothing" {
		t.Errorf("nothing is known of a policy: %s", is)
	}
	r.Policies = nil
	if is := words(New(r, "test", nil)); !strings.HasPrefix(is, "Not known, ") {
		t.Errorf("without a policy: %s", is)
	}
}

func TestEveryFindingThatFailsOrIsOpenHasSomethingToDo(t *testing.T) {
	t.Parallel()
	for about := range asked {
		if whatToDo(&report.Finding{Grade: report.Unknown, About: about}) == "" {
			t.Errorf("%s has nothing to do", about)
		}
	}
	for about := range wrong {
		if whatToDo(&report.Finding{Grade: report.Fail, About: about}) == "" {
			t.Errorf("%s has nothing to do", about)
		}
	}
}
