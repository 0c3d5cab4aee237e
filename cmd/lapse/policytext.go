package main

import (
	"cmp"
	"fmt"
	"time"
)

// printPolicies prints a line for each policy, and below them what a person should know.
func (a *app) printPolicies(l *policyList) error {
	if l.halt.Halted {
		fmt.Fprintf(a.out, "%s: `lapse resume --all` allows them again\n", &l.halt)
	}
	if l.restored != "" {
		fmt.Fprintln(a.out, l.restored)
	}
	if l.auditOff {
		fmt.Fprintln(a.out, "audit: off: policies are armed without an auditor, and what is deleted leaves no evidence outside this database")
	}
	if err := a.printTable(l.table(a.verbose)); err != nil {
		return err
	}
	for i := range l.lines {
		for _, note := range l.lines[i].notes() {
			fmt.Fprintf(a.out, "%s: %s\n", l.lines[i].Policy, onOneLine(note))
		}
	}
	for _, problem := range l.leftOver {
		fmt.Fprintln(a.out, problem)
	}
	return nil
}

// table has a line for each policy.
func (l *policyList) table(verbose bool) *table {
	t := newTable("POLICY…", "VER", "STATE…", "TABLE…", "NEXT RUN")
	if verbose {
		t = newTable("POLICY…", "VER", "STATE…", "SINCE", "TABLE…", "NEXT RUN", "LAST RUN", "ROWS", "REASON…")
	}
	for i := range l.lines {
		p := &l.lines[i]
		next := "-"
		switch {
		case p.Next == nil:
		case verbose:
			next = cmp.Or(p.person(), p.Next.UTC().Format(time.RFC3339))
		case !p.Next.After(l.at):
			next = cmp.Or(p.person(), "now")
		default:
			next = cmp.Or(p.person(), "in "+short(p.Next.Sub(l.at)))
		}
		if !verbose {
			t.row(p.Policy, p.Version, p.stands(), p.Table, next)
			continue
		}
		last, rows := p.LastRun.text()
		t.row(p.Policy, p.Version, p.stands(), p.Since.UTC().Format(time.RFC3339), p.Table, next, last, rows, cmp.Or(p.Reason, "-"))
	}
	return t
}
