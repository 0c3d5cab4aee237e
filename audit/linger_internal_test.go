package audit

import (
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
)

func TestUsersRecordsWaitForCompanyAndNoOthers(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { return at }
	small, large := []byte("{}"), []byte(strings.Repeat(" ", lingerBytes/2))
	users := func(value []byte) pending { return pending{entry: &evidence.Entry{Patient: true, Value: value}} }
	others := pending{entry: &evidence.Entry{Value: small}}
	after := func(p pending, mark uint64) pending { p.events = mark; return p }
	for name, c := range map[string]struct {
		items  []pending
		passed time.Duration
		waits  time.Duration
	}{
		"nothing":                                  {nil, 0, 0},
		"a user's":                                 {[]pending{users(small)}, 0, lingerTime},
		"a user's, a while ago":                    {[]pending{users(small)}, lingerTime / 4, lingerTime * 3 / 4},
		"a user's, long ago":                       {[]pending{users(small)}, lingerTime, 0},
		"a user's and a batch's":                   {[]pending{users(small), others}, 0, 0},
		"a batch's and a user's":                   {[]pending{others, users(small)}, 0, 0},
		"so many that they fill a batch":           {[]pending{users(large), users(large)}, 0, 0},
		"a batch's whose events are not there yet": {[]pending{users(small), after(others, 2)}, 0, lingerTime},
		"one whose events are not there yet":       {[]pending{after(users(small), 2)}, 0, 0},
	} {
		began := at
		q := queue{items: c.items}
		q.advance(1, now)
		at = at.Add(c.passed)
		q.advance(1, now)
		if got := max(q.lingers(now), 0); got != c.waits {
			t.Errorf("%s: waits for %s, want %s", name, got, c.waits)
		}
		at = began
	}

	q := queue{items: []pending{others, users(small)}}
	q.advance(1, now)
	q.written = 2
	q.items = append(q.items, users(small))
	q.drop(1)
	q.advance(1, now)
	if got := q.lingers(now); got != lingerTime {
		t.Errorf("after others were written a user's record waits for %s, want %s", got, lingerTime)
	}
}
