package planner

import (
	"fmt"
	"slices"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// ChangeKind says what apply does about a policy.
type ChangeKind string

// The kinds of a change.
const (
	New       ChangeKind = "new"
	Changed   ChangeKind = "changed"   // another version
	Restated  ChangeKind = "state"     // the same version in another state
	Removed   ChangeKind = "dropped"   // out of the file, and pruned
	Missing   ChangeKind = "missing"   // out of the file, and left in force
	Unchanged ChangeKind = "unchanged" // nothing to do
)

// numbered is a version that is to be written.
type numbered struct {
	number schemas.PolicyVersion
	*version
}

// FieldChange is one field of a policy that differs between the file and what is in force.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// String is the line for a person.
func (f FieldChange) String() string {
	switch {
	case f.From == "":
		return fmt.Sprintf("+ %s: %s", f.Field, f.To)
	case f.To == "":
		return fmt.Sprintf("- %s: %s", f.Field, f.From)
	}
	return fmt.Sprintf("~ %s: %s → %s", f.Field, f.From, f.To)
}

// Change is what apply would do about one policy. It marshals to JSON as it stands.
type Change struct {
	Kind        ChangeKind            `json:"kind"`
	Policy      schemas.PolicyName    `json:"policy"`
	Table       string                `json:"table"`
	ID          schemas.PolicyID      `json:"id,omitempty"` // 0 for a policy that never was
	FromVersion schemas.PolicyVersion `json:"from_version,omitempty"`
	ToVersion   schemas.PolicyVersion `json:"to_version,omitempty"`
	FromState   schemas.State         `json:"from_state,omitempty"`
	ToState     schemas.State         `json:"to_state,omitempty"`
	Fields      []FieldChange         `json:"fields,omitempty"`
	MoreFallDue bool                  `json:"more_fall_due,omitempty"` // than under the version in force
	HeldBack    schemas.PolicyVersion `json:"held_back"`               // the version that waits for a yes afterwards; 0 for none
	HeldAgainst string                `json:"held_against,omitempty"`  // than under which
	// Unfit says that the table is not, or no longer, what a policy can delete from. The change is what can be done all the
	// same, and the warnings say why.
	Unfit    bool     `json:"unfit,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	Resolved *Resolved `json:"-"` // nil where nothing of the table was looked at, or nothing came of it

	before     *InForce              // what is in force, nil for nothing
	fromHeld   schemas.PolicyVersion // what was held back before
	newest     schemas.PolicyVersion // that was ever written
	next       *version              // what the file says
	isVersion  schemas.PolicyVersion // which next is of those in force and held back, 0 for neither
	goesOn     *version              // what goes on while next is held back, nil for the version in force as it is
	writes     []numbered            // what Write writes
	former     *version              // what is in force
	careful    bool                  // it was made from the record alone, or could have been
	complaints yamldoc.Errors        // what makes it unfit
	fallback   *Change               // what is left of it when its table turns out unfit, nil for nothing
}

// Careful reports whether the change can be made without its table: it pauses, drops, observes or lengthens a policy, or
// changes when and how it works. Such a change takes no lock on a table of a user's and checks nothing of it.
func (c *Change) Careful() bool {
	return c.Kind == Removed || c.careful && (c.ToState != schemas.Arming || live(c.FromState))
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
	return c.former != nil && c.next != nil && !moreFallDue(c.next, c.former)
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
	return heldBackText(c.Policy, c.ToVersion, c.HeldBack)
}

func heldBackText(policy schemas.PolicyName, inForce, held schemas.PolicyVersion) string {
	if held == 0 {
		return ""
	}
	meanwhile := "nothing is deleted until then"
	if inForce != held {
		meanwhile = fmt.Sprintf("version %d goes on until then", inForce)
	}
	return fmt.Sprintf("version %d is held back: `lapse policy arm %s --version %[1]d` says yes, and %[3]s", held, policy, meanwhile)
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

// tableOwnerField is the role that owns the table: by its oid, because a role can be renamed.
const tableOwnerField = "table's owner"

// shownFirst is the order in which a person reads the terms, with what was found of them in the database. Others come last.
var shownFirst = []string{
	"every", "daily", "cron", "window", "where", "where means", "where's columns", "batch", "pace", "rate", "max_rows_per_run", "max_fraction",
	"shards", "index", "action", "triggers", "trusted code", "evidence", "events.values", "events.columns", "moves", "owner", "basis", "latitude",
}

// lines are the spec's fields for a person.
func (s *spec) lines(table string) []FieldChange {
	key := make([]string, 0, len(s.Key))
	for _, k := range s.Key {
		key = append(key, schemas.Identifier(k.Name)+" "+k.Type)
	}
	floors := make([]string, len(s.Floor))
	for i := range s.Floor {
		floors[i] = s.Floor[i].String()
	}
	every := ""
	if s.Every != nil {
		every = s.Every.String()
	}
	all := []expiry.Field{{Name: "table", Value: table}}
	all = append(append(all, s.Expire.Fields()...), []expiry.Field{
		{Name: "key", Value: strings.Join(key, ", ")},
		{Name: "cascades to", Value: strings.Join(s.Cascades, ", ")},
		{Name: tableOwnerField, Value: fmt.Sprintf("the role with oid %d", s.TableOwner)},
	}...)
	terms := append([]expiry.Field{
		{Name: "every", Value: every},
		{Name: "where means", Value: s.WhereRead.Text()},
		{Name: "where's columns", Value: s.WhereRead.ColumnTexts()},
		{Name: "action", Value: s.actionText()},
		{Name: "trusted code", Value: trustedText(s.Trusted)},
	}, s.Terms.Fields()...)
	place := func(f expiry.Field) int {
		if at := slices.Index(shownFirst, f.Name); at >= 0 {
			return at
		}
		return len(shownFirst)
	}
	slices.SortStableFunc(terms, func(a, b expiry.Field) int { return place(a) - place(b) })
	all = append(append(all, terms...), expiry.Field{Name: "floor", Value: strings.Join(floors, "; ")})
	lines := make([]FieldChange, len(all))
	for i, f := range all {
		lines[i] = FieldChange{Field: f.Name, To: f.Value}
	}
	return lines
}

// fieldChanges compares two lists of fields; those of the expiry depend on its kind. from is nil for a policy that is not in force.
func fieldChanges(from, to []FieldChange) []FieldChange {
	before := map[string]string{}
	for _, field := range from {
		before[field.Field] = field.To
	}
	var all []FieldChange
	for _, field := range to {
		field.From = before[field.Field]
		delete(before, field.Field)
		if field.From != field.To {
			all = append(all, field)
		}
	}
	for _, field := range from {
		if was := before[field.Field]; was != "" {
			all = append(all, FieldChange{Field: field.Field, From: was})
		}
	}
	return all
}
