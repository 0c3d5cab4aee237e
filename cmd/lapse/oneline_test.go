package main

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/setup/doctor"
	"lapse/internal/setup/holds"
	"lapse/internal/status"
	"lapse/schemas"
)

// What doctor prints is run by people as it is printed: a name with a line break in it adds no statement, in the text or after the
// dashes.
func TestALineBreakInANameIsNoStatementOfTheDoctors(t *testing.T) {
	t.Parallel()
	const name = "k\n        alter role app superuser; --\r\x1b[2J"
	var out strings.Builder
	(&app{out: &out}).printFindings([]doctor.Finding{
		{Check: "policy p", Grade: doctor.Warn, Text: `foreign key of "` + name + `" has no action`, Advice: `alter table "` + name + `" …`},
		{Check: "policy " + name, Grade: doctor.OK, Text: "fit"},
	})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 || strings.ContainsAny(out.String(), "\r\x1b") || !strings.HasPrefix(lines[1], "        -- ") {
		t.Errorf("it prints\n%s", out.String())
	}
}

// What a stolen login says of itself, and what is written in a row, draws nothing on the terminal of who asks.
func TestWhatALoginSaysDrawsNothingOnTheTerminal(t *testing.T) {
	t.Parallel()
	const lie = "slow\r\x1b[2Jpolicy p is armed\np: all is well"
	since := time.Now()
	line := status.Line{Policy: "p", State: schemas.Armed, Table: lie, Reason: lie, LastRun: &status.LastRun{Ended: lie, Rests: lie, RestsSince: &since}}
	work := []status.Process{{State: lie, Reason: lie, Holder: lie}}
	halt := status.Halt{Halted: true, Since: since, By: lie, Reason: lie}
	text, err := statusText(&status.Status{Paused: &halt, Suspended: lie, Executors: work, Policies: []status.Policy{{Line: line, Work: work}}, LeftOver: []string{lie}}, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	a := &app{out: &out, verbose: true}
	if err := a.printPolicies(&status.List{Halt: halt, Suspended: lie, Policies: []status.Line{line}, LeftOver: []string{}}); err != nil {
		t.Fatal(err)
	}
	a.printHold(&shownHold{
		Record: &holds.Record{Table: lie, Matter: lie, Reason: lie, Columns: []string{lie}}, Changes: []holds.Change{{Reason: lie}},
		Content: &holds.Content{Condition: lie, Keys: [][]string{{lie}}},
	})
	for _, shown := range []string{text, out.String()} {
		if strings.ContainsAny(shown, "\r\x1b") || strings.Contains(shown, "\np: all is well") {
			t.Errorf("it prints\n%q", shown)
		}
	}
}
