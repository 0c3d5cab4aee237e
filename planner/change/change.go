package change

import (
	"fmt"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/record"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// Kind says what apply does about a policy.
type Kind string

// The kinds of a change.
const (
	New       Kind = "new"
	Changed   Kind = "changed"   // another version
	Restated  Kind = "state"     // the same version in another state
	Removed   Kind = "dropped"   // out of the file, and pruned
	Missing   Kind = "missing"   // out of the file, and left in force
	Unchanged Kind = "unchanged" // nothing to do
)

// Change is what apply would do about one policy. It marshals to JSON as is.
type Change struct {
	Kind        Kind                  `json:"kind"`
	Policy      schemas.PolicyName    `json:"policy"`
	Table       string                `json:"table"`
	ID          schemas.PolicyID      `json:"id,omitempty"` // 0 for a policy that never was
	FromVersion schemas.PolicyVersion `json:"from_version,omitempty"`
	ToVersion   schemas.PolicyVersion `json:"to_version,omitempty"`
	FromState   schemas.State         `json:"from_state,omitempty"`
	ToState     schemas.State         `json:"to_state,omitempty"`
	Fields      []record.FieldChange  `json:"fields,omitempty"`
	MoreFallDue bool                  `json:"more_fall_due,omitempty"` // than under the version in force
	HeldBack    schemas.PolicyVersion `json:"held_back"`               // the version that waits for a yes afterwards; 0 for none
	HeldAgainst string                `json:"held_against,omitempty"`  // than under which
	// Unfit says that the table is not, or no longer, what a policy can delete from. The change is what can be done all the
	// same, and the warnings say why.
	Unfit    bool     `json:"unfit,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	Resolved *resolve.Resolved `json:"-"` // nil where nothing of the table was checked, or nothing came of it

	before     *record.InForce       // what is in force, nil for nothing
	fromHeld   schemas.PolicyVersion // what was held back before
	newest     schemas.PolicyVersion // that was ever written
	Next       *record.Version       `json:"-"` // what the file says
	isVersion  schemas.PolicyVersion // which next is of those in force and held back, 0 for neither
	goesOn     *record.Version       // what goes on while next is held back, nil for the version in force as it is
	writes     []*record.Version     // what Write writes, each with its number
	former     *record.Version       // what is in force
	careful    bool                  // it was made from the record alone, or could have been
	complaints yamldoc.Errors        // what makes it unfit
	fallback   *Change               // what is left of it when its table turns out unfit, nil for nothing
}

// Careful reports whether the change can be made without its table: it pauses, drops, observes or lengthens a policy, or
// changes when and how it works. Such a change takes no lock on a table of a user's and checks nothing of it.
func (c *Change) Careful() bool {
	return c.Kind == Removed || c.careful && (c.ToState != schemas.Arming || record.Live(c.FromState))
}

// FallBack makes the part of the change that needs no table, because the table has a problem, and reports whether there is one:
// a policy that is new, that lets more fall due, or that is to be armed, is refused.
func (c *Change) FallBack(problem string) bool {
	if c.fallback == nil {
		return false
	}
	*c = *c.fallback
	c.Unfit = true
	c.Warnings = append(c.Warnings, problem)
	return true
}

// Nested reports whether all that was due under the version in force is due under the other one too, so that what newly
// falls due can be counted as a difference. It is true only where that is certain.
func (c *Change) Nested() bool {
	return c.former != nil && c.Next != nil && !record.MoreFallDue(c.Next, c.former)
}

// Arm says yes to a version that is held back: it comes into force, and is armed. A table that is not fit is refused, with
// yamldoc.Errors.
func (c *Change) Arm() error {
	if c.HeldBack == 0 {
		return nil
	}
	if len(c.complaints) > 0 {
		return c.complaints
	}
	c.follow(outcome{state: schemas.Arming})
	c.HeldAgainst, c.fallback = "", nil
	return nil
}

// unfit notes what is wrong with the table.
func (c *Change) unfit(complaints yamldoc.Errors) {
	c.Unfit, c.complaints = true, complaints
	for _, complaint := range complaints {
		c.Warnings = append(c.Warnings, strings.TrimPrefix(complaint.Message, "policy "+string(c.Policy)+": "))
	}
}

// Arms reports whether a version is armed by it that is not on its way already.
func (c *Change) Arms() bool {
	return c.ToState == schemas.Arming && (c.FromState != schemas.Arming || c.ToVersion != c.FromVersion)
}

// Writes reports whether Write would change anything.
func (c *Change) Writes() bool { return c.Kind != Unchanged && c.Kind != Missing }

// Diff is the change for a person, in several lines.
func (c *Change) Diff() string {
	var b strings.Builder
	switch c.Kind {
	case New:
		fmt.Fprintf(&b, "+ policy %s on %s: new, %s\n", c.Policy, c.Table, c.ToState)
	case Changed, Restated:
		fmt.Fprintf(&b, "~ policy %s on %s: %s%s\n", c.Policy, c.Table, c.versions(), c.states())
	case Removed:
		fmt.Fprintf(&b, "- policy %s on %s: dropped, it is not in the file\n", c.Policy, c.Table)
	case Missing:
		fmt.Fprintf(&b, "  policy %s on %s: not in the file, and left %s: --prune drops it\n", c.Policy, c.Table, c.FromState)
	case Unchanged:
		fmt.Fprintf(&b, "  policy %s on %s: unchanged, %s\n", c.Policy, c.Table, c.FromState)
	}
	for _, f := range c.Fields {
		column, numbered := strings.CutSuffix(f.Field, " number") // which says nothing to a person
		switch {
		case !numbered:
			fmt.Fprintf(&b, "    %s\n", f)
		case f.From != "" && f.To != "":
			fmt.Fprintf(&b, "    ~ %s: another column of that name\n", column)
		}
	}
	if c.MoreFallDue {
		b.WriteString("    more rows may fall due than under the version in force\n")
	} else if c.HeldAgainst != "" {
		fmt.Fprintf(&b, "    more rows may fall due than under %s\n", c.HeldAgainst)
	}
	if text := c.HeldBackText(); text != "" {
		fmt.Fprintf(&b, "    %s\n", text)
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "    warning: %s\n", w)
	}
	return b.String()
}

// HeldBackText says which version waits and for what, and what is deleted meanwhile; "" where none waits.
func (c *Change) HeldBackText() string {
	return record.HeldBackText(c.Policy, c.ToVersion, c.HeldBack)
}

// versions is what becomes of the policy's versions, for the line about it.
func (c *Change) versions() string {
	switch {
	case c.ToVersion != c.FromVersion:
		return fmt.Sprintf("version %d → %d, ", c.FromVersion, c.ToVersion)
	case c.fromHeld != 0 && c.HeldBack == 0 && c.fromHeld != c.ToVersion:
		return fmt.Sprintf("version %d is taken back, version %d goes on, ", c.fromHeld, c.ToVersion)
	case c.Kind == Changed:
		return fmt.Sprintf("version %d is held back, version %d goes on, ", c.HeldBack, c.ToVersion)
	}
	return ""
}

func (c *Change) states() string {
	if c.FromState == c.ToState {
		return string(c.ToState)
	}
	return fmt.Sprintf("%s → %s", c.FromState, c.ToState)
}
