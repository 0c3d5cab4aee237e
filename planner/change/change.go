package change

import (
	"fmt"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/record"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// Kind says what apply does with a policy.
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
	MoreFallDue bool                  `json:"more_fall_due,omitempty"` // more than under the version in force
	HeldVersion schemas.PolicyVersion `json:"held_back"`               // the version that waits for a person afterwards; 0 for none
	HeldAgainst string                `json:"held_against,omitempty"`  // than under which
	// Unfit says that a policy cannot, or can no longer, delete from the table. The change is what can be done nevertheless, and the warnings
	// say why.
	Unfit    bool     `json:"unfit,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	Resolved *resolve.Resolved `json:"-"` // nil if the table was not checked, or did not pass

	before     *record.InForce       // the policy in force, nil for none
	fromHeld   schemas.PolicyVersion // the version that was held back before
	newest     schemas.PolicyVersion // the newest version ever written
	Next       *record.Version       `json:"-"` // the version that the file describes
	isVersion  schemas.PolicyVersion // its number if it equals the version in force or held back, 0 for neither
	goesOn     *record.Version       // the version to continue with while Next is held back, nil for the one in force
	writes     []*record.Version     // what Write writes, each with its number
	former     *record.Version       // the version in force
	accepted   bool                  // a person says so of a state or a version, and no file
	careful    bool                  // it was made from the record alone, or could have been
	complaints yamldoc.Errors        // what makes it unfit
	fallback   *Change               // what is left of the change if its table is unfit, nil for nothing
}

// Careful reports whether the change can be made without its table: it pauses, drops, observes or lengthens a policy, or changes when and how
// it works. Such a change takes no lock on a user's table and checks nothing of it.
func (c *Change) Careful() bool {
	return c.Kind == Removed || c.careful && (c.ToState != schemas.Arming || record.Live(c.FromState))
}

// FallBack reduces the change to the part that needs no table, because the table has a problem. It returns false if there is none: a policy that
// is new, that lets more fall due, or that is to be armed, is refused.
func (c *Change) FallBack(problem string) bool {
	if c.fallback == nil {
		return false
	}
	*c = *c.fallback
	c.Unfit = true
	c.Warnings = append(c.Warnings, problem)
	return true
}

// Nested reports whether everything due under the version in force is certainly due under the other one too, so that what newly falls due is
// the difference of two counts.
func (c *Change) Nested() bool {
	return c.former != nil && c.Next != nil && !record.MoreFallDue(c.Next, c.former)
}

// Arm accepts a version that is held back: it comes into force, and is armed. If its table is unfit, Arm returns yamldoc.Errors.
func (c *Change) Arm() error {
	if c.HeldVersion == 0 {
		return nil
	}
	if len(c.complaints) > 0 {
		return c.complaints
	}
	c.follow(outcome{state: schemas.Arming})
	c.HeldAgainst, c.fallback, c.accepted = "", nil, true
	return nil
}

// unfit records what is wrong with the table.
func (c *Change) unfit(complaints yamldoc.Errors) {
	c.Unfit, c.complaints = true, complaints
	for _, complaint := range complaints {
		c.Warnings = append(c.Warnings, strings.TrimPrefix(complaint.Message, "policy "+string(c.Policy)+": "))
	}
}

// Arms reports whether the change arms a version that is not arming already.
func (c *Change) Arms() bool {
	return c.ToState == schemas.Arming && (c.FromState != schemas.Arming || c.ToVersion != c.FromVersion)
}

// Writes reports whether Write would change anything.
func (c *Change) Writes() bool { return c.Kind != Unchanged && c.Kind != Missing }

// Diff shows the change to a person, in several lines.
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
	if text := c.HeldVersionText(); text != "" {
		fmt.Fprintf(&b, "    %s\n", text)
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "    warning: %s\n", w)
	}
	return b.String()
}

// HeldVersionText says which version waits and for what, and what is deleted meanwhile; "" if none waits.
func (c *Change) HeldVersionText() string {
	return record.HeldVersionText(c.Policy, c.ToVersion, c.HeldVersion)
}

// versions says what happens to the policy's versions, for the line about it.
func (c *Change) versions() string {
	switch {
	case c.ToVersion != c.FromVersion:
		return fmt.Sprintf("version %d → %d, ", c.FromVersion, c.ToVersion)
	case c.fromHeld != 0 && c.HeldVersion == 0 && c.fromHeld != c.ToVersion:
		return fmt.Sprintf("version %d is taken back, version %d goes on, ", c.fromHeld, c.ToVersion)
	case c.Kind == Changed:
		return fmt.Sprintf("version %d is held back, version %d goes on, ", c.HeldVersion, c.ToVersion)
	}
	return ""
}

func (c *Change) states() string {
	if c.FromState == c.ToState {
		return string(c.ToState)
	}
	return fmt.Sprintf("%s → %s", c.FromState, c.ToState)
}
