package functions

import (
	"fmt"
	"strings"

	"lapse/planner/expiry"
)

// Floor is the least time that rows of a table are kept, as configured when the version was made. A version records its floors, and no
// version below one is made.
type Floor struct {
	Table       string          `json:"table"` // the pattern
	Of          string          `json:"of"`    // the relation that it is about: the policy's table, or one in which a cascade deletes
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

// problem says how an expiry of table violates the floor, "" if it does not.
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

// FloorProblems returns all violations of floors by an expiry of table.
func FloorProblems(floors []Floor, table string, kind expiry.Kind) []string {
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
	if problems := FloorProblems(d.Floors, d.Table, d.Expire); len(problems) > 0 {
		return fmt.Errorf("write the functions of policy %s: %s", d.Name, strings.Join(problems, "; "))
	}
	return nil
}
