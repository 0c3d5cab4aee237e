package main

import (
	"context"
	"errors"
	"fmt"

	"lapse/executor"
	"lapse/internal/status"
)

// runNotes says what else a person should know about a run.
func runNotes(st *executor.Statistics) []string {
	var notes []string
	if st.DroppedPartitions > 0 {
		notes = append(notes, countedWere(st.DroppedPartitions, "partition")+" dropped whole")
	}
	if st.Refreshed > 0 {
		notes = append(notes, countedWere(st.Refreshed, "row")+" due, and changed before they were deleted")
	}
	if st.SteppedOver > 0 {
		notes = append(notes, counted(st.SteppedOver, "row")+" could not be deleted")
	}
	r := status.LastRun{LeftDue: st.LeftDue, LeftHeld: st.LeftHeld, LeftResting: st.LeftResting, Watermark: st.Watermark}
	if left := r.Left(); left != "" {
		notes = append(notes, left)
	}
	return notes
}

// printSummary prints the result of one pass.
func (a *app) printSummary(s executor.Summary) error {
	return a.printDone(s, "no policy was due")
}

// printTotals prints the work of a process that was stopped.
func (a *app) printTotals(ctx context.Context, s executor.Summary) error {
	err := a.printDone(s, "nothing was deleted")
	if err == nil && !a.asJSON && errors.Is(context.Cause(ctx), errSignalled) {
		_, err = fmt.Fprintln(a.out, errSignalled)
	}
	return err
}

// printDone prints a line for each policy and, below them, what does not fit into a column; nothing is the text for no policies.
func (a *app) printDone(s executor.Summary, nothing string) error {
	if a.asJSON {
		return a.printJSON(s)
	}
	if len(s.Policies) == 0 {
		_, err := fmt.Fprintln(a.out, nothing)
		return err
	}
	t := newTable("POLICY…", "TABLE…", "DELETED", "CASCADED", "OUTCOME")
	for i := range s.Policies {
		p := &s.Policies[i]
		t.row(p.Policy, p.Table, p.Deleted, p.Cascaded, p.Outcome)
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	for i := range s.Policies {
		for _, note := range summaryNotes(&s.Policies[i]) {
			fmt.Fprintf(a.out, "%s: %s\n", s.Policies[i].Policy, onOneLine(note))
		}
	}
	return nil
}

// summaryNotes says what a person should know about the work of a policy.
func summaryNotes(p *executor.PolicySummary) []string {
	var notes []string
	if p.Limit != "" {
		notes = append(notes, p.Limit)
	}
	if p.Error != "" {
		notes = append(notes, status.WithoutName(p.Policy, p.Error))
	}
	if p.LeftBehind {
		notes = append(notes, "due rows are left that other sessions have locked, or changed meanwhile: see pg_locks; the next run follows soon")
	}
	whole := p.Whole
	if len(p.Obstacles) > 0 {
		whole.SteppedOver = 0 // those in quarantine include them
	}
	return append(notes, runNotes(&whole)...)
}
