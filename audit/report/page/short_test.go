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
	if is := words(d); is != "Possibly, Yes, Not known, Something, " {
		t.Errorf("of the example: %s", is)
	}
	for i, want := range []string{"2 rows deleted in the name of Lapse without its key (carts", "public.sessions 41", "by the counts of the program that deletes", "LIT-2026-4: 2 keys of public.sessions", "In this order"} {
		if !strings.Contains(d.Short[i].Text, want) {
			t.Errorf("%s: %s", d.Short[i].Question, d.Short[i].Text)
		}
	}
	if others := d.Short[1].Text; !strings.Contains(others, " The policies deleted 1,205,897 rows.") {
		t.Error(others)
	}
	if first := d.Short[4].Items; len(first) < 3 || !strings.Contains(strings.Join(first, ""), "docs/alarm.md") {
		t.Errorf("what to do: %q", first)
	} else if who := strings.Join(first, " "); !strings.Contains(who, "The people who run the database: ") || !strings.Contains(who, "The policy’s owner (web team): ") {
		t.Errorf("and by whom: %q", first)
	}

	early := r.Policies[3]
	early.Zero = []report.ZeroLine{{About: report.DeletedNotDue, Figure: report.Number(1)}}
	r.Policies = append(r.Policies, early)
	if is := words(New(r, "test", nil)); !strings.HasPrefix(is, "Yes, ") {
		t.Errorf("of a row that was not due: %s", is)
	}

	quiet := r.Policies[3] // passes
	for i := range r.Policies {
		r.Policies[i].RollForward.NotAssessed = report.NoSnapshot
	}
	if s := New(r, "test", nil).Sections[1]; !strings.HasPrefix(s.Lead, noRollForward) || !s.Blocks[0].Table.Fold {
		t.Errorf("of policies that were counted once: %q", s.Lead)
	}
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

func TestWhatToDoBeginsWithRowsThatMayBeGoneWrongly(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	late, forged := r.Policies[3], r.Policies[3]
	late.Name, forged.Name = "a-late", "b-forged"
	late.Verdict, forged.Verdict = report.Fail, report.Fail
	late.Findings = []report.Finding{{Grade: report.Fail, About: report.Overdue}}
	forged.Findings = []report.Finding{{Grade: report.Fail, About: report.Unverified}}
	five := int64(5)
	late.Zero = []report.ZeroLine{{About: report.Overdue, Figure: report.Number(five)}}
	late.Snapshots.Add(report.Snapshot{Taken: "2026-10-30T04:05:06Z", Counted: "2026-10-30T04:06:00Z"})
	r.Policies = []report.Policy{late, forged}
	d := New(r, "test", nil)
	if items := d.Short[4].Items; len(items) != 2 || !strings.Contains(items[0], "(b-forged)") {
		t.Errorf("%q", items)
	}
	if is := d.Short[2]; is.Word != "Yes" || !strings.Contains(is.Text, "deletes, the oldest of 2026-10-30 04:05:06 UTC;") {
		t.Errorf("%s %s", is.Word, is.Text)
	}
}

func TestNumbersHaveTheirNouns(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 day": counted(1, "day"), "365 days": counted(365, "day"), "2 keys": counted(2, "key"), "2 policies": counted(2, "policy"), "1,000 rows": counted(1000, "row"),
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestACellSaysFirstThatItWasNotAssessed(t *testing.T) {
	t.Parallel()
	least, most := int64(0), int64(7)
	for want, f := range map[string]report.Figure{
		"not assessed (0 seen)": {NotAssessed: report.InGap, AtLeast: &least}, "not assessed (0 to 7)": {NotAssessed: report.NoLatitude, AtLeast: &least, AtMost: &most},
		"not assessed": report.NotAssessed(report.NoSnapshot),
	} {
		if c := zeroCell(report.Overdue, f, ""); c.Text != want || c.Tone != Open {
			t.Errorf("%q of %q, not %q", c.Text, c.Tone, want)
		}
	}
	if c := zeroCell(report.DeletedNotDue, report.Figure{NotAssessed: report.InGap, AtLeast: &most}, ""); c.Tone != Fail {
		t.Errorf("7 that were seen are no failure: %q", c.Tone)
	}
	r, _ := example(t)
	p := &r.Policies[3]
	p.Floors = report.List[report.RetainedAtLeast]{}
	if c := lineCell(p, 7, policyAt(3)); c.Text != "no floor" {
		t.Errorf("without a floor: %q", c.Text)
	}
}

func TestASentenceNamesWhatOthersDeletedAndWhatIsNotAssessed(t *testing.T) {
	t.Parallel()
	p := &report.Policy{
		Verdict: report.Fail, Deleted: report.Deleted{Rows: 7997, Cascaded: 799}, Users: report.Users{Deleted: report.Number(33), Unverified: report.Number(3)},
		Findings: []report.Finding{
			{Grade: report.Fail, About: report.Unverified, Count: 3},
			{Grade: report.Unknown, About: report.DeletedHeld, Why: report.KeysNotInLog},
			{Grade: report.Warn, About: report.Quarantined, Count: 1},
		},
	}
	const want = "7,997 rows deleted, with 799 rows of other tables by cascade, and 30 by users; 3 rows deleted in the name of Lapse without its key; nobody can say whether rows under a legal hold were deleted; and 1 warning."
	if is := sentence(p); is != want {
		t.Errorf("%s", is)
	}
}

func TestEveryFindingThatFailsOrIsOpenHasSomethingToDo(t *testing.T) {
	t.Parallel()
	for about := range asked {
		if whatToDo(&report.Finding{Grade: report.Unknown, About: about}, &report.Policy{}).what == "" {
			t.Errorf("%s has nothing to do", about)
		}
	}
	for about := range wrong {
		if whatToDo(&report.Finding{Grade: report.Fail, About: about}, &report.Policy{}).what == "" {
			t.Errorf("%s has nothing to do", about)
		}
	}
}

func TestTheFirstCommandNamesTheWitnesses(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	d := New(r, "test", []report.Witness{{Name: "w.example.com/1"}, {Name: "x'; reboot; '"}})
	first := d.Verify[0]
	if !strings.HasSuffix(first.Command, "' --witness 'w.example.com/1+HASH+KEY'") || !strings.HasSuffix(first.Text, ". Ask each witness for its own:") {
		t.Errorf("%s %s", first.Text, first.Command)
	}
	if none := New(r, "test", nil).Verify[0]; strings.Contains(none.Command, "--witness") || strings.Contains(none.Text, "witness") {
		t.Errorf("without a witness: %s %s", none.Text, none.Command)
	}
}

func TestThePageExplainsItsWordsAndLeavesNoHeadingEmpty(t *testing.T) {
	t.Parallel()
	r, _ := example(t)
	r.Holds, r.Halts, r.Coverage.Gaps, r.Policies = report.List[report.Hold]{}, report.List[report.Halt]{}, report.List[report.Gap]{}, nil
	canonical, err := r.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	page, err := New(r, "test", nil).HTML(canonical, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<dt>quarantine</dt>", "<dt>latitude</dt>", "the checking program (lapse audit)", "Legal holds: none. Halts of all policies: none.", "Gaps: none.", "<li>none</li>",
		`title="` + report.ClaimedNotObserved.Means() + `"`, "in another way than by this file",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
