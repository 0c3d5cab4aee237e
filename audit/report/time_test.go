package report_test

import (
	"fmt"
	"testing"
	"time"
)

// A restore brings rows back: those that were deleted above the point that it went back to.
func TestARewindSaysWhatCameBackAndWhatWasDeletedSince(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.batch(minute(20), "a", 100, 10, 10, "match", allDue(10))
	from := l.reach()
	l.batch(minute(21), "a", 100, 7, 7, "match", allDue(7))
	l.user(minute(22), "a", 100, "delete", "user", 3)
	to := l.reach()
	l.history = 2
	l.add("rewind", fmt.Sprintf(`"at":%q,"reason":"accepted","from":%s,"to":%s,"ancestry":[]`, text(minute(23)), from, to))
	l.beat(minute(30)).batch(minute(31), "a", 100, 8, 8, "match", allDue(8))
	r := l.closed().must(minute(10), minute(60))
	if len(r.Rewinds.Items) != 1 {
		t.Fatalf("it has %d rewinds", len(r.Rewinds.Items))
	}
	w := r.Rewinds.Items[0]
	if len(w.Policies) != 1 || w.Policies[0].BroughtBack != 7 || w.Policies[0].DeletedSince != 8 || w.Users != 3 {
		t.Errorf("it says %+v", w)
	}
	if p := r.Policies[0]; p.Deleted.Rows != 25 || findings(&p) != "warn restored" {
		t.Errorf("%d rows: %s", p.Deleted.Rows, findings(&p))
	}
}

// A session that chooses the time of its commits does not choose the period that they are reported in.
func TestAMisdatedTransactionCountsWhereItIs(t *testing.T) {
	t.Parallel()
	for _, dated := range []time.Time{minute(-500_000), minute(500_000), minute(100)} {
		l := quiet(t)
		l.user(dated, "a", 100, "delete", "user", 4)
		l.beat(minute(20))
		for m := 30; m < 130; m += 10 {
			l.beat(minute(m))
		}
		r := l.must(minute(5), minute(60))
		if u := r.Policies[0].Users.Deleted; !u.Is(4) || r.Coverage.Misdated.Len() != 1 {
			t.Errorf("dated %s: %s rows, %d misdated", text(dated), shown(u), r.Coverage.Misdated.Len())
		}
		if r = l.must(minute(60), minute(120)); !r.Policies[0].Users.Deleted.Is(0) {
			t.Errorf("dated %s: the next period has it too", text(dated))
		}
	}
}

// A clock that is set back by hours does not hide what comes next, and one that jumps ahead for a while does not end the period.
func TestAClockThatIsSetBackHidesNothing(t *testing.T) {
	t.Parallel()
	l := quiet(t)
	l.beat(minute(20)).beat(minute(900_000))
	l.batch(minute(21), "a", 100, 5, 5, "match", allDue(5)) // its heartbeat comes next, at the right time
	l.beat(minute(30)).batch(minute(31), "a", 100, 6, 6, "match", allDue(6))
	r := l.closed().must(minute(10), minute(60))
	if p := r.Policies[0]; p.Deleted.Rows != 11 || r.Coverage.SetBack == 0 {
		t.Errorf("%d of 11 rows, %d times set back: %s", p.Deleted.Rows, r.Coverage.SetBack, findings(&p))
	}
}
