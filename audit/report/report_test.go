package report_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/report"
)

func shown(f report.Figure) string {
	text := string(f.NotAssessed)
	if f.Value != nil {
		text = fmt.Sprint(*f.Value)
	}
	if f.AtLeast != nil {
		text += fmt.Sprintf(" >= %d", *f.AtLeast)
	}
	if f.AtMost != nil {
		text += fmt.Sprintf(" <= %d", *f.AtMost)
	}
	return text
}

// lines are the lines that must be zero and are not, and the verdict.
func lines(p *report.Policy) string {
	text := string(p.Verdict)
	for i := range p.Zero {
		if line := &p.Zero[i]; !line.Figure.Is(0) {
			text += fmt.Sprintf("; %s %s", line.About, shown(line.Figure))
			for _, t := range line.Transactions.Items {
				text += fmt.Sprintf(" (%d of %s)", t.Rows, t.Table)
			}
		}
	}
	return text
}

// findings are those of a policy without their counts.
func findings(p *report.Policy) string {
	var all []string
	for i := range p.Findings {
		all = append(all, fmt.Sprintf("%s %s", p.Findings[i].Grade, p.Findings[i].About))
	}
	return strings.Join(all, ", ")
}

// quiet is a log with one policy in which all is as it should be, between minutes 10 and 60.
func quiet(t testing.TB) *log {
	l := newLog(t)
	l.policy(minute(1), 1, "a", 100, dueTerms)
	l.beat(minute(9))
	return l
}

func (l *log) closed() *log {
	return l.snapshot(minute(58), 1, "a", l.sees(), counts(0, 0, 0, 0)).beat(minute(59)).beat(minute(61))
}

func TestAVerdictIsThatOfTheWorstFinding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(l *log)
		want  string
	}{
		"nothing wrong":      {func(l *log) { l.batch(minute(20), "a", 100, 5, 5, "match", allDue(5)) }, "pass"},
		"nothing deleted":    {func(*log) {}, "pass"},
		"claimed, not seen":  {func(l *log) { l.batch(minute(20), "a", 100, 5, 3, "mismatch", allDue(3)) }, "fail; claimed_not_observed 2 (2 of public.a)"},
		"seen, not claimed":  {func(l *log) { l.batch(minute(20), "a", 100, 3, 5, "mismatch", allDue(5)) }, "fail; observed_not_claimed 2 (2 of public.a)"},
		"not due":            {func(l *log) { l.batch(minute(20), "a", 100, 5, 5, "mismatch", `,"due":3,"not_due":2,"unknown":0`) }, "fail; deleted_not_due 2 (2 of public.a)"},
		"due or not unknown": {func(l *log) { l.batch(minute(20), "a", 100, 5, 5, "mismatch", `,"due":3,"not_due":0,"unknown":2`) }, "not_assessed; deleted_not_due some_values_unknown >= 0"},
		"only claimed":       {func(l *log) { l.batch(minute(20), "a", 100, 5, 5, "match", "") }, "not_assessed; deleted_not_due evidence_claimed >= 0"},
		"unverified":         {func(l *log) { l.user(minute(20), "a", 100, "delete", "unverified", 4) }, "fail; unverified 4 (4 of public.a)"},
		"a gap in it": {func(l *log) {
			l.add("gap", fmt.Sprintf(`"at":%q,"reason":"slot","from":%s,"to":%s,"ancestry":[]`, text(minute(20)), l.reach(), l.reach()))
		}, "not_assessed; claimed_not_observed gap >= 0; observed_not_claimed gap >= 0; deleted_not_due gap >= 0; deleted_held gap >= 0; unverified gap >= 0; gaps 1; deleted_below_floor gap >= 0"},
		"a topic lost": {func(l *log) {
			l.add("gap", fmt.Sprintf(`"at":%q,"reason":"topic","topic":"t","from":%s,"to":%s,"ancestry":[]`, text(minute(20)), l.reach(), l.reach()))
		}, "not_assessed; gaps 1"},
		"edited by hand": {func(l *log) {
			l.row(minute(20), "state", "update", map[string]any{"id": 1, "version": 1, "state": "armed"})
		}, "warn"},
		"paused": {func(l *log) { l.state(minute(20), 1, 1, "paused").state(minute(25), 1, 1, "armed") }, "warn"},
		"halted": {func(l *log) {
			l.row(minute(20), "halt", "insert", map[string]any{"id": 4, "halted": true, "by": "bob"})
		}, "warn"},
		"another kind": {func(l *log) { l.add("weather", `"at":"2026-10-01T00:20:00Z"`) }, "warn"},
		"a table gone": {func(l *log) {
			l.add("coverage", fmt.Sprintf(`"at":%q,"tables":[{"table":"public.a","table_oid":100,"change":"ends","until":%s}],"ancestry":[]`, text(minute(20)), l.reach()))
		}, "not_assessed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := quiet(t)
			l.beat(minute(15))
			c.write(l)
			r := l.closed().must(minute(10), minute(60))
			if len(r.Policies) != 1 || lines(&r.Policies[0]) != c.want {
				t.Errorf("it is %q (%s), want %q", lines(&r.Policies[0]), findings(&r.Policies[0]), c.want)
			}
		})
	}
}

func TestAClaimThatProvesNothingIsOfThePoliciesWhoseTablesItTouched(t *testing.T) {
	t.Parallel()
	l := quiet(t).policy(minute(1), 2, "b", 200, dueTerms)
	l.beat(minute(15)).user(minute(20), "b", 200, "delete", "unverified", 4)
	l.add("transaction", fmt.Sprintf(`%s,"verdict":"unclaimed","observed":[]`, l.committed(minute(21)))) // it only wrote into the ledger
	r := l.closed().must(minute(10), minute(60))
	if n := r.Coverage.Unproven.Len(); n != 2 {
		t.Errorf("the log as a whole has %d", n)
	}
	of := map[string]int64{}
	for i := range r.Policies {
		for _, f := range r.Policies[i].Findings {
			if f.About == report.Unproven {
				of[r.Policies[i].Name] = f.Count
			}
		}
	}
	if len(of) != 1 || of["b"] != 1 {
		t.Errorf("the policies have %v, and one transaction deleted from b", of)
	}
}

// Each record is in one of two periods that follow one another, whatever its time says.
func TestEachDeletionIsInOneOfTwoPeriodsThatFollowOneAnother(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		l := quiet(t)
		all := int64(0)
		for m := 10; m < 60; m++ {
			for range random.IntN(4) {
				skew := time.Duration(random.NormFloat64() * float64(time.Minute))
				if random.IntN(10) == 0 {
					skew = time.Duration(random.Int64N(int64(4*365*24*time.Hour))) - 2*365*24*time.Hour // a replication origin's
				}
				n := 1 + random.IntN(5)
				all += int64(n)
				l.batch(minute(m).Add(skew), "a", 100, n, n, "match", allDue(n))
			}
			l.beat(minute(m))
		}
		l.beat(minute(61))
		border := minute(20 + random.IntN(30))
		one, other := l.must(minute(1), border), l.must(border, minute(60))
		if got := one.Policies[0].Deleted.Rows + other.Policies[0].Deleted.Rows; got != all {
			t.Fatalf("seed %d: two periods have %d rows, the log %d", seed, got, all)
		}
		whole := l.must(minute(1), minute(60))
		if got := whole.Policies[0].Deleted.Rows; got != all {
			t.Fatalf("seed %d: the whole has %d rows, the log %d", seed, got, all)
		}
	}
}

func TestAPeriodHasItsBeginningAndNotItsEnd(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	for _, at := range []time.Time{minute(20).Add(-time.Microsecond), minute(20), minute(30).Add(-time.Microsecond), minute(30)} {
		l.batch(at, "a", 100, 1, 1, "match", allDue(1))
	}
	r := l.beat(minute(31)).must(minute(20), minute(30))
	if got := r.Policies[0].Deleted.Rows; got != 2 {
		t.Errorf("it has %d of 2 rows", got)
	}
	if r.Log.Opening == nil || r.Log.Opening.Records > r.Log.FirstLeaf || r.Log.Closing.Records != l.signed[len(l.signed)-1] {
		t.Errorf("it is bounded by %v and %v, and begins with leaf %d", r.Log.Opening, r.Log.Closing, r.Log.FirstLeaf)
	}
	if later := l.beat(minute(32)).beat(minute(33)).must(minute(20), minute(30)); later.Log.Closing != r.Log.Closing {
		t.Errorf("when the log has grown it is bounded by %v", later.Log.Closing)
	}
}

func TestAPeriodThatTheLogCannotAnswerForIsRefused(t *testing.T) {
	t.Parallel()
	l := quiet(t).closed()
	for name, c := range map[string]struct {
		from, to time.Time
		want     string
	}{
		"before the log":      {minute(-100), minute(-50), "the log began at 2026-10-01T00:00:00Z, after the period"},
		"from before the log": {minute(-1), minute(50), "Ask from 2026-10-01T00:00:00Z on, or --from begin"},
		"in the future":       {minute(1000), minute(2000), "it is not over. Ask up to that time"},
		"not over":            {minute(10), minute(62), "the log has come to 2026-10-01T01:01:00Z: it is not over"},
		"backward":            {minute(20), minute(10), "it must begin before it ends"},
		"without a record":    {minute(40), minute(41), "no auditor ran in it"},
		"too long":            {minute(40).AddDate(-30, 0, 0), minute(41), "longer than 20 years"},
	} {
		_, err := l.report(c.from, c.to)
		var period *report.PeriodError
		if !errors.As(err, &period) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: it says %v, want %q", name, err, c.want)
		}
	}
	if _, err := l.report(minute(10), minute(60), "b"); err == nil || !strings.Contains(err.Error(), `no policy "b" in the period; it has: a`) {
		t.Errorf("of another policy it says %v", err)
	}
	l.signed = l.signed[:len(l.signed)-1]
	if _, err := l.report(minute(10), minute(60)); err == nil || !strings.Contains(err.Error(), "no checkpoint signs the log to the end of the period") {
		t.Errorf("without a checkpoint it says %v", err)
	}
	quick := newLog(t)
	quick.records = quick.records[:len(quick.records)-1] // the heartbeat
	quick.policy(minute(0), 1, "a", 16401, dueTerms)
	quick.signed = []int64{int64(len(quick.records))}
	if _, err := quick.report(minute(1), minute(2)); err == nil || !strings.Contains(err.Error(), "no heartbeat of an auditor yet") {
		t.Errorf("without a heartbeat it says %v", err)
	}
}

// What the first heartbeat after the period finds may be of its end.
func TestAGapThatIsFoundJustAfterThePeriodCountsInIt(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.snapshot(minute(50), 1, "a", l.sees(), counts(0, 0, 0, 0)).beat(minute(59))
	from := l.reach()
	l.user(minute(60), "a", 100, "delete", "user", 1)
	l.add("gap", fmt.Sprintf(`"at":%q,"reason":"publications","from":%s,"to":%s,%s,"ancestry":[]`, text(minute(61)), from, l.reach(), heartbeat(minute(61))))
	r := l.beat(minute(62)).must(minute(10), minute(60))
	if r.Coverage.Gaps.Len() != 1 || r.Policies[0].Verdict != report.Unknown {
		t.Errorf("it has %d gaps, and says %s", r.Coverage.Gaps.Len(), lines(&r.Policies[0]))
	}
	if next := l.beat(minute(70)).must(minute(60), minute(65)); next.Coverage.Gaps.Len() != 1 {
		t.Errorf("the next period has %d gaps", next.Coverage.Gaps.Len())
	}
}

// A roll-forward runs between two counts: what the one saw and the other did not, wherever its record is.
func TestARollForwardHasWhatTheOneCountSawAndTheOtherDidNot(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.batch(minute(2), "a", 100, 1000, 1000, "match", allDue(1000)) // long before
	l.batch(minute(10), "a", 100, 7, 7, "match", allDue(7))         // it commits before the count, which does not see it yet
	open := l.xid
	l.snapshot(minute(11), 1, "a", fmt.Sprintf("%d:%d:%d", open, l.xid+1, open), counts(100, 0, 2, 0))
	l.beat(minute(12))
	l.batch(minute(20), "a", 100, 60, 60, "match", allDue(60))
	l.user(minute(21), "a", 100, "delete", "user", 5)
	l.beat(minute(30))
	late := l.xid + 1
	l.snapshot(minute(50), 1, "a", fmt.Sprintf("%d:%d:", late, late), counts(40, 0, 3, 0))
	l.batch(minute(51), "a", 100, 500, 500, "match", allDue(500))
	r := l.beat(minute(59)).beat(minute(61)).must(minute(12), minute(60))
	roll := &r.Policies[0].RollForward
	got := fmt.Sprint(shown(roll.DueStart), shown(roll.HeldStart), " ", shown(roll.ByPolicy), " ", shown(roll.ByUsers), " ", shown(roll.DueEnd), shown(roll.HeldEnd), " ", shown(roll.FellDue))
	if want := "1002 67 5 403 13"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	// The next period's begins where this one ends.
	l.snapshot(minute(70), 1, "a", l.sees(), counts(0, 0, 0, 0))
	next := l.beat(minute(71)).beat(minute(81)).must(minute(60), minute(80))
	if next.Policies[0].RollForward.Start == nil || next.Policies[0].RollForward.Start.ID != roll.End.ID {
		t.Errorf("the next one begins with %+v", next.Policies[0].RollForward.Start)
	}
	if got := next.Policies[0].RollForward.ByPolicy; !got.Is(500) {
		t.Errorf("the next one has %s rows", shown(got))
	}
}

func TestWhatIsPastDueIsNamedAsFarAsTheCountTellsIt(t *testing.T) {
	t.Parallel()
	for counted, want := range map[string]string{
		counts(9, 0, 0, 3):                           "pass",
		counts(9, 4, 2, 0):                           "fail; overdue 4",
		counts(9, 4, 2, 1):                           "fail; overdue quarantine_not_separable >= 3 <= 4",
		counts(9, 4, 2, 6):                           "not_assessed; overdue quarantine_not_separable >= 0 <= 4",
		`,"not_counted":"it takes longer than 2m0s"`: "not_assessed; overdue no_snapshot",
	} {
		l := quiet(t)
		l.snapshot(minute(58), 1, "a", l.sees(), counted)
		r := l.beat(minute(59)).beat(minute(61)).must(minute(10), minute(60))
		if got := lines(&r.Policies[0]); got != want {
			t.Errorf("of %s it says %s, want %s", counted, got, want)
		}
	}
}

func TestNamesAndNumbersOfEveryKindAreReported(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for i, name := range []string{"<script>alert(1)</script>", "a\u2028b\x00c", "", "\u202edetrever", strings.Repeat("x", 63), `"'&;=cmd|'`} {
		l.row(minute(1), "version", "insert", map[string]any{"policy": name, "id": i + 1, "version": 1, "table": "public." + name, "table_oid": 100 + i, "terms": dueTerms})
		l.state(minute(2), i+1, 1, "armed")
	}
	l.beat(minute(9))
	const huge = 1 << 60
	l.batch(minute(20), "<script>alert(1)</script>", 100, huge, huge, "match", fmt.Sprintf(`,"due":%d,"not_due":0,"unknown":0`, huge))
	r := l.beat(minute(61)).must(minute(10), minute(60))
	if len(r.Policies) != 6 {
		t.Errorf("%d policies", len(r.Policies))
	}
	written, err := r.Canonical()
	if err != nil || strings.ContainsAny(string(written), "<>&") || !strings.Contains(string(written), fmt.Sprint(huge)) {
		t.Errorf("it cannot stand in a page: %v\n%s", err, written)
	}
}

func TestALogWithoutPoliciesHasAReport(t *testing.T) {
	t.Parallel()
	l := newLog(t).beat(minute(20)).beat(minute(61))
	if r := l.must(minute(10), minute(60)); len(r.Policies) != 0 || r.Coverage.Heartbeats != 1 {
		t.Errorf("it has %d policies, %d heartbeats", len(r.Policies), r.Coverage.Heartbeats)
	}
}

// A policy that has another name from some version on is one policy.
func TestARenamedPolicyIsOne(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.batch(minute(20), "a", 100, 3, 3, "match", allDue(3))
	l.row(minute(21), "version", "insert", map[string]any{"policy": "b", "id": 1, "version": 2, "table": "public.a", "table_oid": 100, "terms": dueTerms})
	l.state(minute(21), 1, 2, "armed")
	l.batch(minute(22), "b", 100, 4, 4, "match", allDue(4))
	r := l.beat(minute(61)).must(minute(10), minute(60))
	if len(r.Policies) != 1 || r.Policies[0].Name != "b" || r.Policies[0].Deleted.Rows != 7 || r.Policies[0].Versions.Len() != 2 {
		t.Errorf("it has %+v", r.Policies)
	}
}

func TestQuarantineIsCountedFromWhatIsRestated(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	change := func(at time.Time, members string) {
		l.add("quarantine", fmt.Sprintf(`%s,"policy_id":1,"policy":"a","table":"public.a","table_oid":100,%s`, l.committed(at), members))
	}
	change(minute(3), `"op":"restated","rows":5`)
	l.beat(minute(10))
	change(minute(20), `"op":"insert","entered":4`)
	change(minute(30), `"op":"insert","left":7`)
	r := l.closed().must(minute(10), minute(60))
	q := r.Policies[0].Quarantine
	if !q.AtStart.Is(5) || q.Entered != 4 || q.Left != 7 || !q.AtEnd.Is(2) || findings(&r.Policies[0]) != "warn quarantined" {
		t.Errorf("it says %+v: %s", q, findings(&r.Policies[0]))
	}
}

// Rows of a table that a hold is on: the log does not have which ones, so nobody can say that none of them was deleted.
func TestUnderAHoldNobodyCanSayThatNothingHeldWasDeleted(t *testing.T) {
	t.Parallel()
	hold := func(l *log, at time.Time, row, is string) {
		l.add("hold", fmt.Sprintf(`%s,"row":%q,"op":"insert","is":{"hold":7,%s}`, l.committed(at), row, is))
	}
	for name, c := range map[string]struct {
		state string
		want  string
	}{"effective": {"effective", "not_assessed; deleted_held held_keys_not_in_log"}, "requested": {"requested", "pass"}, "released": {"released", "pass"}} {
		l := quiet(t)
		hold(l, minute(11), "hold", `"matter":"M","table":"public.a","table_oid":100,"keys":2,"digest":"ab","by":"counsel"`)
		hold(l, minute(12), "state", fmt.Sprintf(`"state":%q,"position":"0/FF"`, c.state))
		l.batch(minute(20), "a", 100, 3, 3, "match", allDue(3))
		r := l.closed().must(minute(10), minute(60))
		if got := lines(&r.Policies[0]); got != c.want {
			t.Errorf("%s: it says %s, want %s", name, got, c.want)
		}
		if r.Holds.Len() != 1 || len(r.Holds.Items[0].Policies) != 1 || !slices.Equal(r.Policies[0].Holds, []int64{7}) {
			t.Errorf("%s: it has %+v, and the policy %v", name, r.Holds, r.Policies[0].Holds)
		}
	}
}

// As many rows as nobody wants to read one by one are counted, and a thousand are named.
func TestAReportDoesNotGrowWithWhatWasDeleted(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	for range 1500 {
		l.user(minute(20), "a", 100, "delete", "unverified", 2)
	}
	r := l.closed().must(minute(10), minute(60))
	line := r.Policies[0].Zero[4]
	if !line.Figure.Is(3000) || len(line.Transactions.Items) != report.MaxListed || line.Transactions.More != 500 {
		t.Errorf("%s rows, %d named and %d more", shown(line.Figure), len(line.Transactions.Items), line.Transactions.More)
	}
}
