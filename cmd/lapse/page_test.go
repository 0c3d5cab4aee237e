package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"lapse/internal/status"
)

// The page's JSON is what the command prints.
func TestThePageAndTheCommandWriteTheSameJSON(t *testing.T) {
	t.Parallel()
	s := &status.Status{At: time.Unix(1_800_000_000, 0).UTC(), Suspended: "a <b>restore</b> \u202e", Audit: status.Audit{Required: true, Slot: "lapse_app"}}
	var out bytes.Buffer
	a := &app{out: &result{to: &out}, asJSON: true}
	if err := a.showStatus(s); err != nil {
		t.Fatal(err)
	}
	if err := a.answerJSON("lapse status", errNeedsPerson); err != nil {
		t.Fatal(err)
	}
	got, err := statusJSON(s, "")
	if err != nil || string(got) != out.String() {
		t.Errorf("the page: %s, %v\nthe command: %s", got, err, &out)
	}
	for _, c := range []struct {
		s    *status.Status
		says []string
	}{
		{s, []string{`"exit": 3`, `"warnings": [` + "\n    \"slow\"", `"slot": "lapse_app"`}},
		{nil, []string{`"exit": 1`, `"result": null`, `"message": "slow"`}},
	} {
		got, err := statusJSON(c.s, "slow")
		if err != nil {
			t.Fatal(err)
		}
		if err := checkEnvelope([]string{"0", "lapse", "status", "--json"}, string(got)); err != nil {
			t.Error(err)
		}
		for _, text := range c.says {
			if !strings.Contains(string(got), text) {
				t.Errorf("without %s: %s", text, got)
			}
		}
	}
}
