package report_test

import (
	"fmt"
	"maps"
	"testing"
)

// judged adds a user's transaction. The log says how many of its rows were due.
func (l *log) judged(at int, name string, oid, due, notDue, unknown int) *log {
	return l.add("transaction", fmt.Sprintf(`%s,"verdict":"unclaimed","observed":[%s]`, l.committed(minute(at)),
		tally("public."+name, oid, "delete", "user", due+notDue+unknown, fmt.Sprintf(`,"due":%d,"not_due":%d,"unknown":%d`, due, notDue, unknown))))
}

// The report says of users' deletions what the log says of each transaction, and how many may be missing in that.
func TestUsersDeletionsAreCountedByWhetherTheyWereDue(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		terms map[string]any
		log   func(l *log)
		want  string
	}{
		"none":             {log: func(*log) {}, want: "0, 0"},
		"judged":           {log: func(l *log) { l.judged(20, "a", 100, 3, 2, 0).judged(21, "a", 100, 0, 7, 0) }, want: "3, 9"},
		"not due":          {log: func(l *log) { l.judged(20, "a", 100, 0, 7, 0) }, want: "0, 7"},
		"of another table": {log: func(l *log) { l.judged(20, "b", 101, 3, 2, 0) }, want: "0, 0"},
		"some unknown": {
			log:  func(l *log) { l.judged(20, "a", 100, 3, 2, 1) },
			want: "some_user_deletes_not_judged >= 3 <= 4, some_user_deletes_not_judged >= 2 <= 3",
		},
		"some before there was a rule": {
			log:  func(l *log) { l.user(minute(19), "a", 100, "delete", "user", 5).judged(20, "a", 100, 3, 2, 0) },
			want: "some_user_deletes_not_judged >= 3 <= 8, some_user_deletes_not_judged >= 2 <= 7",
		},
		"some unverified": {
			log:  func(l *log) { l.user(minute(19), "a", 100, "delete", "unverified", 5).judged(20, "a", 100, 3, 2, 0) },
			want: "some_user_deletes_not_judged >= 3 <= 8, some_user_deletes_not_judged >= 2 <= 7",
		},
		"moved": {log: func(l *log) { l.user(minute(19), "a", 100, "move", "user", 5).judged(20, "a", 100, 3, 2, 0) }, want: "3, 2"},
		"truncated": {
			log:  func(l *log) { l.user(minute(19), "a", 100, "truncate", "user", 1).judged(20, "a", 100, 3, 2, 0) },
			want: "truncated >= 3, truncated >= 2",
		},
		"none judged": {log: func(l *log) { l.user(minute(19), "a", 100, "delete", "user", 5) }, want: "user_deletes_not_judged, user_deletes_not_judged"},
		"by claims":   {terms: map[string]any{"evidence": "claimed"}, log: func(l *log) { l.judged(20, "a", 100, 3, 2, 0) }, want: "user_deletes_not_judged, user_deletes_not_judged"},
		"by claims in the end": {log: func(l *log) {
			l.judged(20, "a", 100, 3, 2, 0)
			claimed := maps.Clone(dueTerms)
			claimed["evidence"] = "claimed"
			l.row(minute(21), "version", "insert", map[string]any{
				"policy": "a", "id": 1, "version": 2, "table": "public.a", "table_oid": 100,
				"at": text(minute(21)), "by": "alice", "reason": "OPS-3", "terms": claimed,
			}).state(minute(21), 1, 2, "armed")
			l.user(minute(22), "a", 100, "delete", "user", 5)
		}, want: "some_user_deletes_not_judged >= 3 <= 8, some_user_deletes_not_judged >= 2 <= 7"},
		"a soft policy": {terms: map[string]any{"action": "soft"}, log: func(l *log) { l.judged(20, "a", 100, 3, 2, 0) }, want: "user_deletes_not_judged, user_deletes_not_judged"},
		"over a gap": {log: func(l *log) {
			l.judged(20, "a", 100, 3, 0, 0)
			l.add("gap", fmt.Sprintf(`"at":%q,"reason":"slot","from":%s,"to":%s,"ancestry":[]`, text(minute(22)), l.reach(), l.reach()))
		}, want: "gap >= 3, gap"},
	} {
		l := newLog(t)
		terms := maps.Clone(dueTerms)
		maps.Copy(terms, of.terms)
		l.policy(minute(1), 1, "a", 100, terms).beat(minute(9))
		of.log(l)
		r := l.closed().must(minute(10), minute(60))
		u := r.Policies[0].Users
		got := shown(u.Due) + ", " + shown(u.NotDue)
		if got != of.want {
			t.Errorf("%s: %s, want %s", name, got, of.want)
		}
	}
}
