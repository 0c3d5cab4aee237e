package verify_test

import (
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/verify"
)

func TestATransactionThatNamesAnotherTimeIsFound(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	commit := func(after time.Duration) *evidence.LogRecord {
		return &evidence.LogRecord{Kind: evidence.KindTransaction, Time: noon.Add(after)}
	}
	beat := func(after time.Duration) *evidence.LogRecord {
		return &evidence.LogRecord{Kind: evidence.KindCoverage, Time: noon, Heartbeat: &evidence.Heartbeat{At: noon.Add(after)}}
	}
	for name, c := range map[string]struct {
		log   []*evidence.LogRecord
		count int
		leaf  int64
	}{
		"as they come":             {[]*evidence.LogRecord{commit(-time.Hour), beat(0), commit(time.Second), commit(0), beat(time.Minute)}, 0, 0},
		"an audit that was away":   {[]*evidence.LogRecord{beat(0), commit(time.Hour), commit(5 * time.Hour), beat(5 * time.Hour)}, 0, 0},
		"a former year":            {[]*evidence.LogRecord{beat(0), commit(time.Second), commit(-9000 * time.Hour), beat(time.Minute)}, 1, 2},
		"two of them":              {[]*evidence.LogRecord{beat(0), commit(-time.Hour), commit(time.Second), commit(-time.Hour)}, 2, 1},
		"a year to come":           {[]*evidence.LogRecord{beat(0), commit(time.Second), commit(9000 * time.Hour), commit(2 * time.Second), beat(time.Minute)}, 1, 2},
		"a clock that is set back": {[]*evidence.LogRecord{beat(0), commit(-30 * time.Second), beat(-30 * time.Second), commit(0)}, 0, 0},
	} {
		clock := verify.Clock{}
		for leaf, r := range c.log {
			clock.Next(int64(leaf), r)
		}
		if clock.Misdated != c.count || clock.Leaf != c.leaf {
			t.Errorf("%s: %d found, the first at leaf %d", name, clock.Misdated, clock.Leaf)
		}
	}
}
