package main

import "testing"

func TestTheKeyOfARecordNamesItsRow(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]struct {
		id    int
		state keyState
	}{
		`{"id":"42"}`: {42, hasName},
		`{"id":"42","tenant":"7","at":"2026-01-01 00:00:00+00","note":"x"}`: {42, hasName},
		`{"id":42}`: {42, hasName},
		`{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"name":"d.shop.sessions.Key"},"payload":{"id":42}}`: {42, hasName},
		`{}`:            {0, noName},
		`"lapse-fence"`: {0, noEvent},
		``:              {0, noEvent},
	} {
		if id, state := rowOf([]byte(key)); id != want.id || state != want.state {
			t.Errorf("%s: %d, %d; want %+v", key, id, state, want)
		}
	}
}

func TestATopicWithARowTooFewOrTooManyIsRefused(t *testing.T) {
	t.Parallel()
	const a, b, other, nameless, fence = `{"id":"10"}`, `{"id":11}`, `{"id":"12"}`, `{}`, `"lapse-fence"`
	for name, c := range map[string]struct {
		keys  []string
		named bool
		ok    bool
	}{
		"each once":               {[]string{a, fence, b}, true, true},
		"one missing":             {[]string{a, fence}, true, false},
		"one twice":               {[]string{a, b, a}, true, false},
		"one twice, one missing":  {[]string{a, a}, true, false},
		"one of another row":      {[]string{a, b, other}, true, false},
		"one that names none":     {[]string{a, b, nameless}, true, false},
		"without names":           {[]string{nameless, fence, nameless}, false, true},
		"one missing, no names":   {[]string{nameless}, false, false},
		"names where none can be": {[]string{a, b}, false, false},
	} {
		counted := newTally(10, 2)
		for _, key := range c.keys {
			counted.add([]byte(key))
		}
		if err := counted.judge(c.named); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
