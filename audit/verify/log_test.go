package verify_test

import (
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/audit/verify"
	"lapse/schemas"
)

func TestTheLogBeginsAsItMustAndOnlyGoesForward(t *testing.T) {
	t.Parallel()
	at := func(kind evidence.Kind, lsn, seq int, more bool) *evidence.LogRecord {
		reach := evidence.Reach{History: 1, Timeline: 1, LSN: schemas.LSN(lsn)}
		return &evidence.LogRecord{Kind: kind, LogPosition: evidence.LogPosition{Reach: reach, Seq: uint32(seq)}, More: more}
	}
	origin, route := at(evidence.KindOrigin, 10, 0, false), at(evidence.KindRoute, 10, 1, false)
	one, two := at(evidence.KindTransaction, 20, 0, false), at(evidence.KindTransaction, 30, 0, false)
	first, second := at(evidence.KindTransaction, 20, 0, true), at(evidence.KindCoverage, 20, 1, false)
	next := at(evidence.KindRoute, 20, 1, false)
	accepted := at(evidence.KindRewind, 15, 0, false)
	accepted.History = 2
	for name, c := range map[string]struct {
		log  []*evidence.LogRecord
		says string // empty: nothing
	}{
		"two transactions":               {[]*evidence.LogRecord{origin, route, one, two}, ""},
		"a transaction of two records":   {[]*evidence.LogRecord{origin, route, first, second, two}, ""},
		"a route that follows":           {[]*evidence.LogRecord{origin, route, one, next, two}, ""},
		"a rewind into another history":  {[]*evidence.LogRecord{origin, route, one, accepted}, ""},
		"nothing":                        {nil, "does not begin with origin and route"},
		"an origin alone":                {[]*evidence.LogRecord{origin}, "does not begin with origin and route"},
		"no origin":                      {[]*evidence.LogRecord{route, one}, "begins with a record of kind route"},
		"no route":                       {[]*evidence.LogRecord{origin, one, two}, "after its origin the log has a record of kind transaction"},
		"an origin within":               {[]*evidence.LogRecord{origin, route, at(evidence.KindOrigin, 20, 0, false)}, "is another origin"},
		"a record twice":                 {[]*evidence.LogRecord{origin, route, one, one}, "record 3 is at"},
		"a record after a later one":     {[]*evidence.LogRecord{origin, route, two, one}, "record 3 is at"},
		"the second record alone":        {[]*evidence.LogRecord{origin, route, second, second}, "record 3 is at"},
		"the second record missing":      {[]*evidence.LogRecord{origin, route, first, two}, "has another after it: true"},
		"one more than there should be":  {[]*evidence.LogRecord{origin, route, one, second}, "has another after it: false"},
		"a number left out":              {[]*evidence.LogRecord{origin, route, first, at(evidence.KindCoverage, 20, 2, false)}, "record 3 is at"},
		"an end within a transaction":    {[]*evidence.LogRecord{origin, route, first}, "with another record to come"},
		"a former history's transaction": {[]*evidence.LogRecord{origin, route, accepted, two}, "record 3 is at"},
	} {
		var said []string
		l := verify.Log{Broken: func(what string) { said = append(said, what) }}
		for _, r := range c.log {
			l.Next(r)
		}
		l.End()
		if text := strings.Join(said, "\n"); (c.says == "") != (text == "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: it says %q", name, text)
		}
	}
}

// Somebody goes on where he has stopped.
func TestTheLogMayBeReadFromSomeRecordOn(t *testing.T) {
	t.Parallel()
	at := func(lsn int) *evidence.LogRecord {
		return &evidence.LogRecord{Kind: evidence.KindTransaction, LogPosition: evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: schemas.LSN(lsn)}}}
	}
	for want, log := range map[int][]*evidence.LogRecord{0: {at(20), at(30)}, 1: {at(30), at(20)}} {
		said := 0
		l := verify.Log{Within: true, Broken: func(string) { said++ }}
		for _, r := range log {
			l.Next(r)
		}
		if l.End(); said != want {
			t.Errorf("it says %d times that the order is broken, not %d", said, want)
		}
	}
	l := verify.Log{Within: true, Broken: func(what string) { t.Error(what) }}
	l.End()
}
