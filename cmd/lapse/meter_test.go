package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/executor"
)

func TestTheProgressLineSaysHowFarHowFastAndWhatHoldsItBack(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]executor.Progress{
		"p: 30 rows deleted, 10 a second":                                               {Deleted: 20, Cascaded: 10, Rate: 10},
		"p: 20 of about 120 rows deleted, 10 a second, about 10s left":                  {Deleted: 20, Rate: 10, Expected: 120},
		"p: 20 of about 120 rows deleted, 20 a second, about 10s left, held back: rate": {Deleted: 20, Cascaded: 20, Rate: 20, Expected: 120, Held: "rate"},
		"p: 130 of about 130 rows deleted, 10 a second":                                 {Deleted: 130, Rate: 10, Expected: 120},
		"p: 0 of about 120 rows deleted, 0 a second, held back: slot_headroom":          {Expected: 120, Held: "slot_headroom"},
		"p: 20 of about 200000020 rows deleted, 10 a second, about 231d left":           {Deleted: 20, Rate: 10, Expected: 200000020},
	} {
		p.Policy = "p"
		if got := meterLine(&p); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// What is logged is in lines of its own, above the progress, and nothing of the progress is left at the end.
func TestWhatIsLoggedDoesNotMixWithTheProgressLine(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	now := time.Now()
	m := &meter{out: &screen, now: func() time.Time { return now }}
	write := func(text string) {
		if n, err := m.Write([]byte(text)); err != nil || n != len(text) {
			t.Fatal(n, err)
		}
	}
	write("first\n")
	m.show(executor.Progress{Policy: "p", Deleted: 1})
	m.show(executor.Progress{Policy: "p", Deleted: 2}) // too soon
	write("second\n")
	now = now.Add(meterInterval)
	m.show(executor.Progress{Policy: "p", Deleted: 3})
	m.clear()
	m.clear()
	fmt.Fprintln(&screen, "the result")
	if got := visible(screen.String()); got != "first\nsecond\nthe result\n" {
		t.Errorf("the screen shows %q", got)
	}
	if got := screen.String(); !strings.Contains(got, "p: 1 row") || strings.Contains(got, "p: 2 rows") || !strings.Contains(got, "p: 3 rows") {
		t.Errorf("what was drawn: %q", got)
	}
}

// visible is what a terminal shows of a text: clearLine takes away what is in the line.
func visible(text string) string {
	var shown strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if at := strings.LastIndex(line, clearLine); at >= 0 {
			line = line[at+len(clearLine):]
		}
		shown.WriteString(line)
	}
	return shown.String()
}
