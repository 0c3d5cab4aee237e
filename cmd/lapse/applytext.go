package main

import (
	"fmt"
	"strings"

	"lapse/internal/setup/apply"
	"lapse/planner/change"
	"lapse/planner/survey"
	"lapse/schemas"
)

func (a *applier) print(changes apply.Changes) {
	granted := map[string]bool{} // policies of one owner share a deleter
	for i := range changes {
		c := &changes[i]
		if a.nothingToSay(c) {
			continue
		}
		if diff := c.Diff(); diff != "" {
			fmt.Fprintln(a.out, strings.TrimRight(diff, "\n"))
		}
		if c.NewlyDue != nil {
			fmt.Fprintf(a.out, "    %s\n", c.NewlyDue)
			if local := c.NewlyDue.Local; local != nil {
				fmt.Fprintf(a.out, "    %s\n", local)
			}
		}
		if len(c.Publish) > 0 {
			fmt.Fprintf(a.out, "  publish %s\n", strings.Join(c.Publish, ", "))
		}
		if c.Grant || c.Change.Writes() && !c.Careful() {
			var grants []string
			for _, statement := range c.Grants {
				if !granted[statement] {
					grants = append(grants, statement)
				}
				granted[statement] = true
			}
			a.printStatements("give its deleter what it lacks", grants)
		}
		a.printStatements("make the index that finds its due rows", c.Build)
		for _, index := range c.DropIndexes {
			fmt.Fprintf(a.out, "  drop index %s, which Lapse made and no policy needs\n", index)
		}
		if len(c.Leave) > 0 {
			fmt.Fprintf(a.out, "  no longer publish %s\n", strings.Join(c.Leave, ", "))
		}
	}
	fmt.Fprint(a.out, a.others(changes))
	if !changes.Write() {
		fmt.Fprintln(a.out, "nothing to do")
	}
	fmt.Fprint(a.out, a.total(changes))
}

// shortStatement is the longest single statement that is printed without --verbose.
const shortStatement = 120

// printStatements prints the statements of a change. Without --verbose it only counts them if there are several, or if one is long.
func (a *applier) printStatements(what string, statements []string) {
	short := len(statements) == 1 && len(statements[0]) <= shortStatement
	if len(statements) > 0 && !short && !a.verbose {
		fmt.Fprintf(a.out, "  %s: %s (--verbose shows %s)\n", what, counted(len(statements), "statement"), them(len(statements)))
		return
	}
	for _, statement := range statements {
		fmt.Fprintf(a.out, "  %s;\n", statement)
	}
}

// them returns the pronoun for n things.
func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// nothingToSay reports whether a policy stays as it is and has nothing new to report. Other commands report its older warnings; here they
// are only counted.
func (a *applier) nothingToSay(c *apply.Change) bool {
	return (c.Kind == change.Unchanged || c.Kind == change.Missing) && !c.Writes() && !c.Unfit && c.HeldVersion == 0 && (!a.arm || c.ToState != schemas.Observing)
}

// namedOthers is the largest number of unchanged policies that a line names.
const namedOthers = 5

// others describes the policies that do not change: their number, and those that are not in the file.
func (a *applier) others(changes apply.Changes) string {
	unchanged, warned, missing := 0, 0, []string{}
	for i := range changes {
		switch c := &changes[i]; {
		case !a.nothingToSay(c):
		case c.Kind == change.Missing:
			missing = append(missing, string(c.Policy))
		default:
			unchanged++
			if len(c.Warnings) > 0 {
				warned++
			}
		}
	}
	text := ""
	if unchanged > 0 {
		text = counted(unchanged, "policy") + " unchanged"
		if warned > 0 {
			text += fmt.Sprintf(", %d with warnings: `lapse plan` shows them", warned)
		}
		text += "\n"
	}
	if n := len(missing); n > 0 {
		if n > namedOthers {
			missing = append(missing[:namedOthers], fmt.Sprintf("%d more", n-namedOthers))
		}
		text += fmt.Sprintf("%s in force and not in the file: --prune would drop %s\n", countedAre(n, "policy"), strings.Join(missing, ", "))
	}
	return text
}

// total is one line about all changes; "" if nothing changes.
func (a *applier) total(changes apply.Changes) string {
	kinds, all, arms := map[change.Kind]int{}, 0, 0
	for i := range changes {
		c := &changes[i]
		if c.Change.Writes() {
			kinds[c.Kind]++
			all++
			if c.Arms() {
				arms++
			}
		}
	}
	var parts []string
	for _, k := range []struct {
		kind change.Kind
		name string
	}{{change.New, "new"}, {change.Changed, "changed"}, {change.Restated, "in another state"}, {change.Removed, "dropped"}} {
		if n := kinds[k.kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	text := "policies: " + strings.Join(parts, ", ") + "; " + newlyDue(changes)
	if arms > 0 {
		return text + fmt.Sprintf("; %d of %s to be armed, and to delete %s\n", arms, counted(all, "policy"), deletesFrom(a.auditRequired))
	}
	return text + "; nothing more is deleted until armed\n"
}

// newlyDue is the number of rows that fall due because of the changes.
func newlyDue(changes apply.Changes) string {
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
			if n.Former > 0 || n.DueIs != survey.Exact {
				about = "about "
			}
		}
	}
	text := fmt.Sprintf("%s%d rows newly fall due", about, newly)
	if newly == 1 {
		text = about + "1 row newly falls due"
	}
	if uncounted > 0 {
		text += ", and those of " + counted(uncounted, "policy") + " that could not be counted"
	}
	return text
}

func (a *applier) printLeft(changes apply.Changes) {
	for i := range changes {
		for _, problem := range changes[i].Left {
			if !a.asJSON {
				fmt.Fprintf(a.out, "  warning: %s\n", problem)
			}
		}
	}
}

// deletesFrom says when a policy that is being armed begins to delete.
func deletesFrom(auditRequired bool) string {
	if auditRequired {
		return "once the auditor has read past this moment"
	}
	return "from the next run on, without evidence (audit: off)"
}

func (a *applier) report(c *apply.Change) {
	fmt.Fprintf(a.out, "applied %s: version %d, %s\n", c.Policy, c.ToVersion, c.ToState)
	if c.Arms() {
		fmt.Fprintf(a.out, "  it deletes %s\n", deletesFrom(a.auditRequired))
	}
	if held := c.HeldVersionText(); held != "" {
		fmt.Fprintf(a.out, "  %s\n", held)
	}
}
