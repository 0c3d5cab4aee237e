package planner

import (
	"fmt"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
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

	next       *version       // what is written for New and Changed
	former     *version       // what is in force
	careful    bool           // it was made from the record alone, or could have been
	lostArms   bool           // the file says nothing, and an armed policy goes back to observing
	complaints yamldoc.Errors // what makes it unfit
	fallback   *Change        // what is left of it when its table turns out unfit, nil for nothing
}

// Careful reports whether the change can be made without its table: it pauses, drops, observes or lengthens a policy, or
// changes when and how it works. Such a change takes no lock on a table of a user's and checks nothing of it.
func (c *Change) Careful() bool {
	return c.Kind == Removed || c.careful && (c.ToState != schemas.Arming || live(c.FromState))
}

// FallBack makes of the change what can be made without its table, because of a problem with it, and reports whether that is
// anything: a policy that is new, or by which more falls due, or that is to be armed, is refused.
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

// Arm says yes to a change that is held back, or by which an armed policy would go back to observing: the policy is armed.
// A table that is not fit is refused, with yamldoc.Errors.
func (c *Change) Arm() error {
	if c.HeldBack == 0 && !c.lostArms {
		return nil
	}
	if len(c.complaints) > 0 {
		return c.complaints
	}
	if c.Kind == Unchanged {
		c.Kind = Restated
	}
	c.ToState, c.HeldBack, c.HeldAgainst, c.lostArms, c.fallback = schemas.Arming, 0, "", false, nil
	if c.next != nil {
		c.next.spec.HeldAgainst = 0
	}
	return nil
}

// unfit notes what is wrong with the table.
func (c *Change) unfit(complaints yamldoc.Errors) {
	c.Unfit, c.complaints = true, complaints
	for _, complaint := range complaints {
		c.Warnings = append(c.Warnings, strings.TrimPrefix(complaint.Message, "policy "+string(c.Policy)+": "))
	}
}

// Writes reports whether Write would change anything.
func (c *Change) Writes() bool { return c.Kind != Unchanged && c.Kind != Missing }

// Diff is the change for a person, in several lines.
func (c *Change) Diff() string {
	var b strings.Builder
	switch c.Kind {
	case New:
		fmt.Fprintf(&b, "+ policy %s on %s: new, %s\n", c.Policy, c.Table, c.ToState)
	case Changed:
		fmt.Fprintf(&b, "~ policy %s on %s: version %d → %d, %s\n", c.Policy, c.Table, c.FromVersion, c.ToVersion, c.states())
	case Restated:
		fmt.Fprintf(&b, "~ policy %s on %s: %s\n", c.Policy, c.Table, c.states())
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
	if c.HeldBack != 0 {
		fmt.Fprintf(&b, "    held back, although the file says armed: `lapse apply --arm` or `lapse policy arm %s` says yes\n", c.Policy)
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "    warning: %s\n", w)
	}
	return b.String()
}

func (c *Change) states() string {
	if c.FromState == c.ToState {
		return string(c.ToState)
	}
	return fmt.Sprintf("%s → %s", c.FromState, c.ToState)
}

// tableOwnerField is the role that owns the table: by its oid, because a role can be renamed.
const tableOwnerField = "table's owner"

// lines are the spec's fields, in the policy file's order.
func (s *spec) lines(table string) []FieldChange {
	key := make([]string, 0, len(s.Key))
	for _, k := range s.Key {
		key = append(key, schemas.Identifier(k.Name)+" "+k.Type)
	}
	every, daily, cron, window, shards := "", "", "", "", ""
	if s.Every != nil {
		every = s.Every.String()
	}
	if s.Daily != nil {
		daily = s.Daily.String()
	}
	if s.Cron != nil {
		cron = s.Cron.String()
	}
	if s.Window != nil {
		window = s.Window.String()
	}
	if s.Shards != nil {
		shards = strings.TrimSpace(fmt.Sprintf("%d %s", s.Shards.Count, strings.Join(s.Shards.By, ", ")))
	}
	floors := make([]string, len(s.Floor))
	for i := range s.Floor {
		floors[i] = s.Floor[i].String()
	}
	all := []FieldChange{{Field: "table", To: table}}
	for _, f := range s.Expire.Fields() {
		all = append(all, FieldChange{Field: f.Name, To: f.Value})
	}
	return append(all, []FieldChange{
		{Field: "key", To: strings.Join(key, ", ")},
		{Field: "cascades to", To: strings.Join(s.Cascades, ", ")},
		{Field: tableOwnerField, To: fmt.Sprintf("the role with oid %d", s.TableOwner)},
		{Field: "every", To: every},
		{Field: "daily", To: daily},
		{Field: "cron", To: cron},
		{Field: "window", To: window},
		{Field: "where", To: s.Where},
		{Field: "where means", To: s.WhereRead.text()},
		{Field: "where's columns", To: s.WhereRead.columns()},
		{Field: "batch", To: strconv.Itoa(s.Batch)},
		{Field: "pace", To: s.Pace},
		{Field: "rate", To: number(int64(s.Rate))},
		{Field: "max_rows_per_run", To: number(s.MaxRows)},
		{Field: "max_fraction", To: fraction(s.MaxFraction)},
		{Field: "shards", To: shards},
		{Field: "index", To: s.Index},
		{Field: "action", To: s.actionText()},
		{Field: "triggers", To: s.Triggers.String()},
		{Field: "trusted code", To: trustedText(s.Trusted)},
		{Field: "evidence", To: s.Evidence},
		{Field: "events.values", To: s.Events.Values},
		{Field: "events.columns", To: strings.Join(s.Events.Columns, ", ")},
		{Field: "moves", To: s.Moves},
		{Field: "owner", To: s.Owner},
		{Field: "basis", To: s.Basis},
		{Field: "latitude", To: s.Latitude},
		{Field: "floor", To: strings.Join(floors, "; ")},
	}...)
}

// number is "" for none.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// fraction is "" for none.
func fraction(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// fieldChanges compares two lists of fields, of which those of the expiry depend on its kind; from is nil for a policy that
// is not in force.
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
