package main

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/config"
)

func TestWhatWitnessesHaveCosignedIsSaidInALine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := &config.Settings{Witnesses: config.Witnesses{Quorum: 1, All: []config.Witness{{Key: "one.example.com+0+0"}, {Key: "two.example.com+0+0"}}}}
	young, old := now.Add(-20*time.Second), now.Add(-time.Hour)
	for _, c := range []struct {
		found cosignedLately
		says  string
		well  bool
	}{
		{cosignedLately{young, map[string]time.Time{"one.example.com": young, "two.example.com": young}}, "the newest checkpoint that the quorum has cosigned is 20s old", true},
		{cosignedLately{young, map[string]time.Time{"one.example.com": young, "two.example.com": old}}, "is 20s old; two.example.com has cosigned nothing for 1h0m0s", false},
		{cosignedLately{old, map[string]time.Time{"one.example.com": old}}, "is 1h0m0s old; one.example.com has cosigned nothing for 1h0m0s; two.example.com has cosigned nothing lately", false},
		{cosignedLately{}, "no checkpoint has the cosignatures of 1 of 2 witnesses lately; one.example.com", false},
	} {
		if text, well := cosignedText(&c.found, s, now); well != c.well || !strings.Contains(text, c.says) {
			t.Errorf("it says %q, %v; want %q", text, well, c.says)
		}
	}
}
