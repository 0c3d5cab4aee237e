package planner

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
)

// Floor is the least time that rows of a table are kept, as it stood when the version was made. A version keeps the floors that
// it was held to; none is made that is below one.
type Floor struct {
	Table       string          `json:"table"` // the pattern
	Of          string          `json:"of"`    // the relation that it is about: the policy's table, or one that rows go from by cascade
	Least       expiry.Interval `json:"least"`
	Reason      string          `json:"reason"`
	TrustColumn bool            `json:"trust_column,omitempty"`
}

func (f *Floor) String() string {
	text := fmt.Sprintf("%s of %s for %s", f.Least, f.Of, f.Reason)
	if f.TrustColumn {
		text += ", or as the row itself says"
	}
	return text
}

// problem is how an expiry of table is below the floor, "" if it is not.
func (f *Floor) problem(table string, kind expiry.Kind) string {
	kept := fmt.Sprintf("rows of %s are kept for at least %s (floors in lapse.yaml, %s: %s)", f.Of, f.Least, f.Table, f.Reason)
	least, judged := expiry.LeastOf(kind)
	doubt, wanted := expiry.DoubtOf(kind), f.Least
	if f.TrustColumn {
		doubt = expiry.Doubt{}
	}
	wanted.Microseconds += doubt.Earlier.Microseconds()
	switch {
	case f.Of != table && !f.TrustColumn:
		return kept + ", and would go along by cascade, of whatever age: put trust_column: true there if that is meant, or take the cascade away"
	case f.Of != table, !judged && f.TrustColumn, judged && least.AtLeast(wanted) && !doubt.Computed:
		return ""
	case !judged:
		return kept + ", and here the row itself says when it goes: put trust_column: true there if the column may be believed"
	case doubt.Computed:
		return kept + ", and here the table computes from other columns what is counted from: put trust_column: true there if the column may be believed"
	case least.AtLeast(f.Least):
		return fmt.Sprintf("%s, and %s after a local time may be up to %s sooner, since nothing says in which zone it was written: write after: %s, "+
			"or put trust_column: true there if the column and its zone may be believed", kept, least, expiry.Interval{Microseconds: doubt.Earlier.Microseconds()}, wanted)
	}
	return fmt.Sprintf("%s, and %s after the column may be sooner: write a longer after", kept, least)
}

// floorProblems are all that an expiry of table is below.
func floorProblems(floors []Floor, table string, kind expiry.Kind) []string {
	var problems []string
	for i := range floors {
		if problem := floors[i].problem(table, kind); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// checkFloors refuses to make functions that delete sooner than a floor of the version allows.
func (d *Definition) checkFloors() error {
	if problems := floorProblems(d.Floors, d.Table, d.Expire); len(problems) > 0 {
		return fmt.Errorf("write the functions of policy %s: %s", d.Name, strings.Join(problems, "; "))
	}
	return nil
}

// floorsOn are the floors about a table and what its rows take along. Names are as the catalog quotes them.
func floorsOn(floors []Floor, table string, cascades []string) []Floor {
	var on []Floor
	for _, f := range floors {
		for _, name := range append([]string{table}, cascades...) {
			if matches(f.Table, unquoted(name)) {
				f.Of = name
				on = append(on, f)
			}
		}
	}
	return on
}

// matches reports whether a name fits a pattern in which * stands for any characters, and ? for one.
func matches(pattern, name string) bool {
	text := regexp.QuoteMeta(pattern)
	text = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(text)
	fits, err := regexp.MatchString(`(?s)^`+text+`$`, name)
	return fits || err != nil // no pattern is an error; if one were, the floor would hold
}

// unquoted is a quoted name as the catalog has it, schema and table with a dot between them.
func unquoted(name string) string {
	const doubled = "\x00" // in no name
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, `""`, doubled), `"`, ""), doubled, `"`)
}

// readFloors lets PostgreSQL read the floors' durations. What it cannot read is a problem.
func readFloors(ctx context.Context, tx pgx.Tx, written []policyfile.Floor) (floors []Floor, problems []string, err error) {
	for _, w := range written {
		least, problem, err := expiry.ReadInterval(ctx, tx, w.Least)
		if err != nil {
			return nil, nil, err
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("the floor of %s in lapse.yaml: %s", w.Table, problem))
		}
		floors = append(floors, Floor{Table: w.Table, Least: least, Reason: w.Reason, TrustColumn: w.TrustColumn})
	}
	return floors, problems, nil
}

// BelowFloor says in what the version in force is below floors as they are today: they were raised, or are new. It is to be
// changed, and neither armed nor resumed meanwhile.
func (p *InForce) BelowFloor(ctx context.Context, db DB, written []policyfile.Floor) (problems []string, err error) {
	err = pinned(ctx, db, func(tx pgx.Tx) error {
		floors, unreadable, err := readFloors(ctx, tx, written)
		problems = append(unreadable, floorProblems(floorsOn(floors, p.TableName, p.spec.Cascades), p.TableName, p.Definition.Expire)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hold policy %s to the floors: %w", p.Name, err)
	}
	return problems, nil
}

// holdTo writes the floors about a version into it that is made of the one in force, so that no more falls due. It keeps the
// floors on record where it is below those of today: what pauses or lengthens a policy is not refused.
func (e *entry) holdTo(v *version) {
	floors := floorsOn(e.floors, v.definition.Table, v.spec.Cascades)
	if len(floorProblems(floors, v.definition.Table, v.definition.Expire)) == 0 {
		v.spec.Floor, v.definition.Floors = floors, floors
	}
}
