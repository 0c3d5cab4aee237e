package main

import (
	"fmt"
	"strings"

	"lapse/internal/setup"
	"lapse/schemas"
)

func (a *applier) print(changes setup.Changes) {
	for i := range changes {
		c := &changes[i]
		if diff := c.Diff(); diff != "" {
			fmt.Fprintln(a.out, strings.TrimRight(diff, "\n"))
		}
		if len(c.Publish) > 0 {
			fmt.Fprintf(a.out, "  publish %s\n", strings.Join(c.Publish, ", "))
		}
		if c.Grant || c.Change.Writes() && !c.Careful() {
			for _, statement := range c.Grants {
				fmt.Fprintf(a.out, "  %s;\n", statement)
			}
		}
		for _, statement := range c.Build {
			fmt.Fprintf(a.out, "  %s;\n", statement)
		}
		for _, index := range c.DropIndexes {
			fmt.Fprintf(a.out, "  drop index %s, which Lapse made and no policy asks for\n", index)
		}
		if len(c.Leave) > 0 {
			fmt.Fprintf(a.out, "  no longer publish %s\n", strings.Join(c.Leave, ", "))
		}
	}
	if !changes.Write() {
		fmt.Fprintln(a.out, "nothing to do")
	}
	if a.dryRun && changes.Count() {
		fmt.Fprintln(a.out, "how many rows newly fall due is counted when it is applied")
	}
}

func (a *applier) printLeft(changes setup.Changes) {
	for i := range changes {
		for _, problem := range changes[i].Left {
			if !a.asJSON {
				fmt.Fprintf(a.out, "  warning: %s\n", problem)
			}
		}
	}
}

func (a *applier) report(c *setup.Change) {
	fmt.Fprintf(a.out, "applied %s: version %d, %s\n", c.Policy, c.ToVersion, c.ToState)
	if c.NewlyDue != nil {
		fmt.Fprintf(a.out, "  %s\n", c.NewlyDue)
	}
	switch {
	case c.ToState == schemas.Arming:
		fmt.Fprintln(a.out, "  it deletes once the auditor has read past this moment")
	case c.HeldBack:
		fmt.Fprintf(a.out, "  it is held back, and deletes nothing until `lapse apply --arm` or `lapse policy arm %s` says yes\n", c.Policy)
	}
}
