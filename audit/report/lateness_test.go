package report_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lapse/audit/report"
	"lapse/schemas"
)

// lateJudged is what a record says of rows that went so late, in seconds.
func lateJudged(late []int64) string {
	steps := map[string]int{}
	for _, s := range late {
		name := "later"
		if i, _ := slices.BinarySearch(schemas.LatenessSteps[:], s); i < len(schemas.LatenessSteps) {
			name = strconv.FormatInt(schemas.LatenessSteps[i], 10)
		}
		steps[name]++
	}
	var parts []string
	for name, n := range steps {
		parts = append(parts, fmt.Sprintf("%q:%d", name, n))
	}
	return allDue(len(late)) + `,"late":{` + strings.Join(parts, ",") + `}`
}

// holds reports whether a lateness is between the bounds that the report has.
func holds(l report.Lateness, late int64) bool {
	return (l.Over == nil || late > *l.Over) && (l.UpTo == nil || late <= *l.UpTo)
}

// Some rows have no histogram: whatever they are, the true numbers are between the bounds.
func TestTheBoundsOfLatenessHoldTheTrueNumbers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		d := rand.New(rand.NewPCG(seed, 1))
		l := newLog(t).policy(minute(1), 1, "sessions", 100, dueTerms)
		var all []int64
		untold := 0
		for range 1 + d.IntN(4) {
			var late []int64
			for range 1 + d.IntN(30) {
				late = append(late, d.Int64N(1<<d.IntN(27)))
			}
			n := len(late)
			if d.IntN(4) == 0 {
				l.batch(minute(2), "sessions", 100, n, n, "match", allDue(n)) // of a former version
				untold += n
			} else {
				l.batch(minute(2), "sessions", 100, n, n, "match", lateJudged(late))
			}
			all = append(all, late...)
		}
		slices.Sort(all)
		got := l.beat(minute(3)).must(minute(0), minute(3)).Policies[0].Timeliness
		past := int64(0)
		for _, s := range all {
			if s > 86400 {
				past++
			}
		}
		rank := func(percent int) int64 { return all[(len(all)*percent+99)/100-1] }
		f := got.PastDeadline
		if !holds(got.P50, rank(50)) || !holds(got.P95, rank(95)) || !holds(got.Worst, rank(100)) || got.Other != int64(untold) || got.Rows != int64(len(all)-untold) ||
			!f.Is(past) && (f.Value != nil || untold == 0 || *f.AtLeast > past || *f.AtMost < past) {
			t.Errorf("seed %d: of %v, %d of them without a histogram: %+v", seed, all, untold, got)
		}
		if untold == 0 && (got.P50.NotAssessed != "" || got.P95.NotAssessed != "" || got.Worst.NotAssessed != "" || got.Why != "") {
			t.Errorf("seed %d: all rows have a histogram: %+v", seed, got)
		}
		if untold > 0 && (got.Why != report.NoHistogram || got.Worst.NotAssessed != report.NoHistogram || got.Worst.UpTo != nil) {
			t.Errorf("seed %d: some rows have none: %+v", seed, got)
		}
	}
}

func TestLatenessIsJudgedByTheVersionThatDeleted(t *testing.T) {
	t.Parallel()
	week := map[string]any{"expire": map[string]any{"column": "at", "after": "30 days"}, "evidence": "due", "latitude": "7 days"}
	for latitude, want := range map[string]string{
		"1 day": "5", "7 days": "0", "24:00:00": "5", "00:00:30": "5", "2 days 12:00:00": "between_steps, 0 to 5", "1 mon": "0", "": "no_latitude, 0 to 5", "soon": "no_latitude, 0 to 5",
	} {
		second := map[string]any{"expire": map[string]any{"column": "at", "after": "20 days"}, "evidence": "due", "latitude": latitude}
		l := newLog(t).policy(minute(1), 1, "sessions", 100, week)
		late := slices.Repeat([]int64{2*86400 + 40000}, 5)
		l.batch(minute(2), "sessions", 100, 5, 5, "match", lateJudged(late)) // three days at most, in time
		l.row(minute(3), "version", "insert", map[string]any{"policy": "sessions", "id": 1, "version": 2, "table": "public.sessions", "table_oid": 100, "at": text(minute(3)), "by": "alice", "reason": "", "terms": second})
		l.state(minute(3), 1, 2, "armed")
		l.records = append(l.records, strings.Replace(l.batch(minute(4), "sessions", 100, 5, 5, "match", lateJudged(late)).records[len(l.records)-1], `"policy_version":1`, `"policy_version":2`, 1))
		l.records = slices.Delete(l.records, len(l.records)-2, len(l.records)-1)
		p := l.beat(minute(5)).must(minute(0), minute(5)).Policies[0]
		f := p.Timeliness.PastDeadline
		var got string
		if f.Value != nil {
			got = fmt.Sprint(*f.Value)
		} else {
			got = fmt.Sprintf("%s, %d to %d", f.NotAssessed, *f.AtLeast, *f.AtMost)
		}
		if got != want {
			t.Errorf("latitude %q: %s, want %s", latitude, got, want)
		}
		warned := slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.About == report.DeletedLate && f.Grade == report.Warn })
		if warned != (f.Least() > 0) {
			t.Errorf("latitude %q: the findings are %v", latitude, p.Findings)
		}
	}
}

func TestLatenessOverAGapHasALeastWorst(t *testing.T) {
	t.Parallel()
	l := newLog(t).policy(minute(1), 1, "sessions", 100, dueTerms)
	l.batch(minute(2), "sessions", 100, 1, 1, "match", lateJudged([]int64{4000}))
	l.add("gap", fmt.Sprintf(`"reason":"slot","at":%q,"from":%s,"to":%s,"lsn":"0/1"`, text(minute(3)), l.reach(), l.reach()))
	got := l.beat(minute(4)).must(minute(0), minute(4)).Policies[0].Timeliness
	if got.P50.NotAssessed != report.InGap || got.P50.Over != nil || got.Worst.NotAssessed != report.InGap || got.Worst.Over == nil || *got.Worst.Over != 3600 || got.Worst.UpTo != nil ||
		got.PastDeadline.NotAssessed != report.InGap {
		t.Errorf("%+v", got)
	}
}

// The last declaration of before the period, and each change in it.
func TestWhatIsDeclaredIsSaidWithItsTime(t *testing.T) {
	t.Parallel()
	l := newLog(t).policy(minute(1), 1, "sessions", 100, dueTerms)
	says := func(at int, declared string) {
		l.add("coverage", fmt.Sprintf(`"at":%q,%s,"declared":%s},"ancestry":[]`, text(minute(at)), strings.TrimSuffix(heartbeat(minute(at)), "}"), declared))
	}
	says(2, `{"backups":"90 days"}`)
	says(3, `{"backups":"35 days","wal_archive":"14 days"}`)
	l.beat(minute(9))
	says(10, `{"backups":"35 days","wal_archive":"14 days"}`) // a start
	says(11, `{}`)
	says(12, `{"backups":"7 days"}`)
	l.beat(minute(20))
	says(21, `{"backups":"1 day"}`)
	l.beat(minute(30))
	got := l.must(minute(9), minute(20)).Residue.Declared.Items
	want := []report.Declaration{{At: report.At(minute(3)), WALArchive: "14 days", Backups: "35 days"}, {At: report.At(minute(11))}, {At: report.At(minute(12)), Backups: "7 days"}}
	for i := range got {
		got[i].Leaf = 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := newLog(t).beat(minute(2)).must(minute(0), minute(2)).Residue.Declared; got.Len() != 0 {
		t.Errorf("nothing is declared: %+v", got)
	}
}

func TestTheOldestRowStillThereIsOfTheLastCount(t *testing.T) {
	t.Parallel()
	counted := func(over string) string { return strings.Replace(counts(9, 9, 0, 0), "}", over+"}", 1) }
	for count, want := range map[string]string{
		counted(`,"oldest_over":0`):                  `{"up_to_seconds":60}`,
		counted(`,"oldest_over":86400`):              `{"over_seconds":86400,"up_to_seconds":172800}`,
		counted(`,"oldest_over":31536000`):           `{"over_seconds":31536000}`,
		counted(""):                                  `{"not_assessed":"not_recorded"}`,
		counts(0, 0, 3, 0):                           `{"not_assessed":"nothing_due"}`,
		`,"not_counted":"it takes longer than 2m0s"`: `{"not_assessed":"no_snapshot"}`,
	} {
		l := quiet(t)
		l.snapshot(minute(20), 1, "a", l.sees(), counted(`,"oldest_over":7776000`))
		l.snapshot(minute(58), 1, "a", l.sees(), count)
		r := l.beat(minute(59)).beat(minute(61)).must(minute(30), minute(60))
		if got, err := json.Marshal(r.Policies[0].Timeliness.OldestPresent); err != nil || string(got) != want {
			t.Errorf("of %s it says %s, want %s: %v", count, got, want, err)
		}
	}
}
