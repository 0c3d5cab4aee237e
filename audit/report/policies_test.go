package report_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"lapse/audit/report"
)

// with is a copy of terms with others.
func with(others map[string]any) map[string]any {
	terms := maps.Clone(dueTerms)
	maps.Copy(terms, others)
	return terms
}

func TestAFloorIsKeptWhereEveryRowWasDueAndThePeriodIsAsLong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ after, least, judged, want string }{
		{"30 days", "7 days", allDue(3), "pass"},
		{"30 days", "30 days", allDue(3), "pass"},
		{"30 days", "1 mon", allDue(3), "not_assessed; deleted_below_floor floor_not_compared"},
		{"1 mon", "28 days", allDue(3), "not_assessed; deleted_below_floor floor_not_compared"}, // a clock may be set ahead in it
		{"2 mons", "4 weeks", allDue(3), "pass"},
		{"30 days", "2 hours", `,"due":2,"not_due":0,"unknown":1`, "not_assessed; deleted_not_due some_values_unknown >= 0; deleted_below_floor floor_not_compared"},
		{"-30 days", "7 days", allDue(3), "not_assessed; deleted_below_floor floor_not_compared"},
		{"P30D", "7 days", allDue(3), "not_assessed; deleted_below_floor floor_not_compared"},
	} {
		l := newLog(t)
		l.policy(minute(1), 1, "a", 100, with(map[string]any{
			"expire": map[string]any{"column": "at", "after": c.after}, "floors": []any{map[string]any{"table": "public.a", "least": c.least}},
		}))
		l.beat(minute(9)).batch(minute(20), "a", 100, 3, 3, "match", c.judged)
		r := l.closed().must(minute(10), minute(60))
		if got := lines(&r.Policies[0]); got != c.want {
			t.Errorf("after %s, floor %s: it says %s, want %s", c.after, c.least, got, c.want)
		}
	}
}

func TestWithoutALatitudeNobodyIsTooLate(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.policy(minute(1), 1, "a", 100, with(map[string]any{"latitude": ""}))
	l.beat(minute(9)).snapshot(minute(58), 1, "a", l.sees(), counts(9, 9, 0, 0))
	r := l.beat(minute(59)).beat(minute(61)).must(minute(10), minute(60))
	if got := lines(&r.Policies[0]); got != "not_assessed; overdue no_latitude >= 0 <= 9" {
		t.Errorf("it says %s", got)
	}
}

// A policy that ends needs no count at the end; one that ended before the period is not in the report.
func TestADroppedPolicyIsReportedForItsLastPeriod(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.batch(minute(20), "a", 100, 3, 3, "match", allDue(3))
	l.state(minute(30), 1, 1, "dropped")
	l.beat(minute(61))
	r := l.must(minute(10), minute(60))
	if got := lines(&r.Policies[0]); got != "pass" || r.Policies[0].State != "dropped" {
		t.Errorf("it says %s of a policy that is %s", got, r.Policies[0].State)
	}
	if r = l.beat(minute(70)).beat(minute(81)).must(minute(62), minute(80)); len(r.Policies) != 0 {
		t.Errorf("the next period has %+v", r.Policies)
	}
}

// A pause counts as far as it is in the period.
func TestAPauseIsAsLongAsItIsInThePeriod(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.state(minute(9), 1, 1, "paused").beat(minute(10))
	l.state(minute(20), 1, 1, "armed").state(minute(50), 1, 1, "paused")
	l.beat(minute(55)).beat(minute(61)).state(minute(70), 1, 1, "armed").beat(minute(71))
	r := l.must(minute(10), minute(60))
	got := ""
	for _, p := range r.Policies[0].Pauses.Items {
		got += fmt.Sprint(p.Seconds, p.To != "", " ")
	}
	if want := "600 true 600 false "; got != want {
		t.Errorf("its pauses are %q, want %q", got, want)
	}
	if u := l.must(minute(60), minute(71)); u.Policies[0].Pauses.Len() != 1 || u.Policies[0].Pauses.Items[0].Seconds != 600 {
		t.Errorf("the next period has %+v", u.Policies[0].Pauses)
	}
}

// What others delete from a partition counts for the policy of its root, under every name that the table has.
func TestAPartitionCountsForThePolicyOfItsRoot(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	tables := func(at int, members string) {
		l.add("coverage", fmt.Sprintf(`"at":%q,"tables":[%s],"ancestry":[]`, text(minute(at)), members))
	}
	tables(10, `{"table":"public.a","table_oid":100,"change":"begins"},{"table":"public.a_1","table_oid":101,"root":"public.a","change":"begins"}`)
	l.user(minute(20), "a_1", 101, "delete", "user", 4)
	tables(21, `{"table":"public.z","table_oid":100,"change":"renamed","former":"public.a"},{"table":"public.a_1","table_oid":101,"root":"public.z","change":"renamed"}`)
	l.user(minute(22), "a_1", 101, "delete", "user", 2)
	l.user(minute(23), "a_1", 101, "move", "user", 1).user(minute(24), "a_1", 101, "truncate", "user", 1)
	r := l.closed().must(minute(9), minute(60))
	u := r.Policies[0].Users
	if got := shown(u.Deleted) + ", " + shown(u.Moves) + ", " + shown(u.Truncates); got != "truncated >= 6, 1, 1" || r.Policies[0].Table != "public.z" {
		t.Errorf("of %s it says %s", r.Policies[0].Table, got)
	}
}

// A log whose records come by two routes is one log.
func TestALogWithTwoRoutesIsOne(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.batch(minute(20), "a", 100, 3, 3, "match", allDue(3)).beat(minute(21))
	l.add("route", `"routing":{}`)
	for i := range l.records {
		if i >= len(l.records)-1 {
			l.records[i] = replaceRoute(l.records[i])
		}
	}
	l.batch(minute(22), "a", 100, 4, 4, "match", allDue(4))
	l.records[len(l.records)-1] = replaceRoute(l.records[len(l.records)-1])
	r := l.closed().must(minute(10), minute(60))
	if r.Policies[0].Deleted.Rows != 7 || fmt.Sprint(r.Log.Routes) != "[1 2]" || r.Policies[0].Verdict != report.Pass {
		t.Errorf("%d rows by the routes %v: %s", r.Policies[0].Deleted.Rows, r.Log.Routes, lines(&r.Policies[0]))
	}
}

func replaceRoute(record string) string {
	return strings.Replace(record, `"route_version":1`, `"route_version":2`, 1)
}
