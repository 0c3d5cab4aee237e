package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
)

// event is the part of an event that the demonstration counts by.
type event struct {
	ID    string `json:"event_id"`
	Tag   string `json:"transaction_tag"`
	Table string `json:"table_name"`
	Lapse struct {
		Cause   string `json:"cause"`
		Policy  string `json:"policy"`
		Cascade bool   `json:"cascade"`
	} `json:"lapse"`
}

// expected is what the story deleted, by cause and table.
var expected = map[string]int{
	"system      public.sessions":        7997, // of 8000 that are due, two are held, and a payment refers to one
	"system      public.session_tag":     799,
	"system      public.page_view_old":   12000,
	"system      public.cart":            600,
	"user        public.sessions":        30, // 25 of the application's and the forger's 5
	"user        public.session_tag":     2,  // the tags of 9010 and 9020 go with their sessions
	"user        public.page_view_today": 7,
	"unverified  public.sessions":        3,
}

// everyTurnHasCome is true once each policy may run again: a pass leaves out those that ran less than 2 seconds ago.
const everyTurnHasCome = `select max(greatest(started_at, ended_at)) + interval '2 seconds' < clock_timestamp() from lapse.run`

// everyRunIsOver is false while a run has deleted its rows and is not closed: the next pass would close it, and say how it ended.
const everyRunIsOver = `select bool_and(ended_at is not null) from lapse.run`

// count stops serve, lets the auditor go to the end of the log, and holds the topics against what was deleted.
func (s *story) count(ctx context.Context) error {
	if err := s.until(ctx, everyRunIsOver); err != nil {
		return err
	}
	if err := s.stopServe(); err != nil {
		return fmt.Errorf("stop lapse serve: %w", err)
	}
	if err := s.until(ctx, everyTurnHasCome); err != nil {
		return err
	}
	if err := s.commandThatNeedsPerson(ctx, "run", "--once"); err != nil { // it counts what is due
		return err
	}
	if err := s.command(ctx, "audit", "--once"); err != nil {
		return err
	}
	fmt.Fprintln(s.out, s.style(blue, "   $ lapse events --json"))
	cmd := exec.CommandContext(ctx, s.lapse, "events", "--json")
	cmd.Env = s.env
	lines, err := cmd.Output()
	if err != nil {
		return err
	}
	got, samples, twice, err := tally(lines)
	if err != nil {
		return err
	}
	for _, cause := range []string{"system", "user", "unverified"} {
		fmt.Fprintf(s.out, "\n   one %s event:\n%s", cause, indent(samples[cause]))
	}
	if err := compare(s.out, got, twice); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "\n   Each deletion is in its topic, once, although the process that wrote them was killed.")
	return nil
}

// verify exports the log, and checks the export as somebody would who has nothing else.
func (s *story) verify(ctx context.Context) error {
	export := filepath.Join(s.dir, "export")
	if err := s.command(ctx, "events", "--export", export); err != nil {
		return err
	}
	return s.command(ctx, "verify", "--dir", export)
}

// report makes a report of the export, and verifies it against the same export.
func (s *story) report(ctx context.Context) error {
	export, page := filepath.Join(s.dir, "export"), filepath.Join(s.dir, "report.html")
	if err := s.commandThatNeedsPerson(ctx, "report", "--from", "begin", "--dir", export, "-o", page); err != nil {
		return err
	}
	return s.command(ctx, "verify", page, "--dir", export)
}

// compare prints what was deleted beside the events. It is an error if a count differs or an event is there twice.
func compare(out io.Writer, got map[string]int, twice int) error {
	fmt.Fprintf(out, "\n     %-34s %10s %10s\n", "cause, table", "deleted", "events")
	differing := 0
	for _, group := range slices.Sorted(maps.Keys(mergeKeys(expected, got))) {
		fmt.Fprintf(out, "     %-34s %10d %10d\n", group, expected[group], got[group])
		if expected[group] != got[group] {
			differing++
		}
	}
	if twice > 0 || differing > 0 {
		return fmt.Errorf("compare events with deletions: %d of the counts above differ, %d events are there twice", differing, twice)
	}
	return nil
}

// tally counts events by cause and table, keeps one of each cause, and counts ids that are there twice.
func tally(lines []byte) (counts map[string]int, samples map[string]string, twice int, err error) {
	counts, samples = map[string]int{}, map[string]string{}
	seen := map[string]bool{}
	for line := range bytes.Lines(lines) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, nil, 0, fmt.Errorf("read an event: %w", err)
		}
		if seen[e.ID] {
			twice++
		}
		seen[e.ID] = true
		counts[fmt.Sprintf("%-11s %s", e.Lapse.Cause, e.Table)]++
		samples[e.Lapse.Cause] = string(line)
	}
	return counts, samples, twice, nil
}

func mergeKeys(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
