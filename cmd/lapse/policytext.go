package main

import (
	"cmp"
	"fmt"
	"time"

	"lapse/internal/status"
)

// printPolicies prints a line for each policy and, below them, notes.
func (a *app) printPolicies(l *status.List) error {
	for _, text := range l.Whole() {
		fmt.Fprintln(a.out, onOneLine(text))
	}
	if l.AuditOff {
		fmt.Fprintln(a.out, "audit: off: policies are armed without an auditor, and deletions leave no evidence outside this database")
	}
	if err := a.printTable(policyTable(l, a.verbose)); err != nil {
		return err
	}
	for i := range l.Policies {
		for _, note := range l.Policies[i].Notes() {
			fmt.Fprintf(a.out, "%s: %s\n", l.Policies[i].Policy, onOneLine(note))
		}
	}
	for _, problem := range l.LeftOver {
		fmt.Fprintln(a.out, problem)
	}
	return nil
}

// policyTable has a line for each policy.
func policyTable(l *status.List, verbose bool) *table {
	t := newTable("POLICY…", "VER", "STATE…", "TABLE…", "NEXT RUN")
	if verbose {
		t = newTable("POLICY…", "VER", "STATE…", "SINCE", "TABLE…", "NEXT RUN", "LAST RUN", "ROWS", "REASON…")
	}
	for i := range l.Policies {
		p := &l.Policies[i]
		next := "-"
		switch {
		case p.Next == nil:
		case verbose:
			next = cmp.Or(p.Person(), p.Next.UTC().Format(time.RFC3339))
		case !p.Next.After(l.At):
			next = cmp.Or(p.Person(), "now")
		default:
			next = cmp.Or(p.Person(), "in "+status.Short(p.Next.Sub(l.At)))
		}
		if !verbose {
			t.row(p.Policy, p.Version, p.StateText(), p.Table, next)
			continue
		}
		last, rows := p.LastRun.Text()
		t.row(p.Policy, p.Version, p.StateText(), p.Since.UTC().Format(time.RFC3339), p.Table, next, last, rows, cmp.Or(p.Reason, "-"))
	}
	return t
}
