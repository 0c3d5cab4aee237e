package main

import (
	"fmt"
	"strings"

	"lapse/internal/setup"
	"lapse/planner"
	"lapse/schemas"
)

func (a *applier) print(changes setup.Changes) {
	granted := map[string]bool{} // policies of one owner share a deleter
	for i := range changes {
		c := &changes[i]
		if diff := c.Diff(); diff != "" {
			fmt.Fprintln(a.out, strings.TrimRight(diff, "\n"))
		}
		if c.NewlyDue != nil {
			fmt.Fprintf(a.out, "    %s\n", c.NewlyDue)
		}
		if len(c.Publish) > 0 {
			fmt.Fprintf(a.out, "  publish %s\n", strings.Join(c.Publish, ", "))
		}
		if c.Grant || c.Change.Writes() && !c.Careful() {
			for _, statement := range c.Grants {
				if !granted[statement] {
					fmt.Fprintf(a.out, "  %s;\n", statement)
				}
				granted[statement] = true
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
	fmt.Fprint(a.out, a.total(changes))
}

// total is one line over all changes, "" where nothing changes.
func (a *applier) total(changes setup.Changes) string {
	kinds, arms := map[planner.ChangeKind]int{}, 0
	for i := range changes {
		c := &changes[i]
		if c.Change.Writes() {
			kinds[c.Kind]++
			if c.ToState == schemas.Arming {
				arms++
			}
		}
	}
	var parts []string
	for _, k := range []struct {
		kind planner.ChangeKind
		name string
	}{{planner.New, "new"}, {planner.Changed, "changed"}, {planner.Restated, "in another state"}, {planner.Removed, "dropped"}} {
		if n := kinds[k.kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	text := "policies: " + strings.Join(parts, ", ") + "; " + newlyDue(changes)
	if arms > 0 {
		return text + fmt.Sprintf("; to be armed: %d, which delete %s\n", arms, deletesFrom(a.auditRequired))
	}
	return text + "; nothing more is deleted until armed\n"
}

// newlyDue is how many rows newly fall due under all changes.
func newlyDue(changes setup.Changes) string {
	newly, uncounted, about := int64(0), 0, ""
	for i := range changes {
		switch n := changes[i].NewlyDue; {
		case n == nil:
		case n.NotCounted != "":
			uncounted++
		case n.Newly != nil:
			newly += *n.Newly
		default:
			newly += n.Due
			if n.Former > 0 || n.DueIs != planner.Exact {
				about = "about "
			}
		}
	}
	text := fmt.Sprintf("%s%d rows newly fall due", about, newly)
	if uncounted > 0 {
		text += fmt.Sprintf(", and those of %d policies that were not counted", uncounted)
	}
	return text
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

// deletesFrom is from when on a policy deletes that is being armed.
func deletesFrom(auditRequired bool) string {
	if auditRequired {
		return "once the auditor has read past this moment"
	}
	return "from the next run on, without evidence (audit: off)"
}

func (a *applier) report(c *setup.Change) {
	fmt.Fprintf(a.out, "applied %s: version %d, %s\n", c.Policy, c.ToVersion, c.ToState)
	switch {
	case c.ToState == schemas.Arming:
		fmt.Fprintf(a.out, "  it deletes %s\n", deletesFrom(a.auditRequired))
	case c.HeldBack:
		fmt.Fprintf(a.out, "  it is held back, and deletes nothing until `lapse apply --arm` or `lapse policy arm %s` says yes\n", c.Policy)
	}
}
