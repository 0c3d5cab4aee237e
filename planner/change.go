package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// Change is what apply would do about one policy. It marshals to JSON as it stands.
type Change struct {
	Kind        ChangeKind    `json:"kind"`
	Policy      PolicyName    `json:"policy"`
	Table       string        `json:"table"`
	ID          PolicyID      `json:"id,omitempty"` // 0 for a policy that never was
	FromVersion PolicyVersion `json:"from_version,omitempty"`
	ToVersion   PolicyVersion `json:"to_version,omitempty"`
	FromState   schemas.State `json:"from_state,omitempty"`
	ToState     schemas.State `json:"to_state,omitempty"`
	Fields      []FieldChange `json:"fields,omitempty"`
	MoreFallDue bool          `json:"more_fall_due,omitempty"`
	HeldBack    bool          `json:"held_back,omitempty"` // the file says armed, more rows fall due, and nobody said yes
	Warnings    []string      `json:"warnings,omitempty"`

	Resolved *Resolved `json:"-"` // nil for dropped and missing
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
		switch {
		case f.From == "":
			fmt.Fprintf(&b, "    + %s: %s\n", f.Field, f.To)
		case f.To == "":
			fmt.Fprintf(&b, "    - %s: %s\n", f.Field, f.From)
		default:
			fmt.Fprintf(&b, "    ~ %s: %s → %s\n", f.Field, f.From, f.To)
		}
	}
	if c.MoreFallDue {
		b.WriteString("    more rows may fall due than under the version in force\n")
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

// lines are the spec's fields, in the policy file's order.
func (s *spec) lines(table string) []FieldChange {
	key := make([]string, 0, len(s.Key))
	for _, k := range s.Key {
		key = append(key, identifier(k.Name)+" "+k.Type)
	}
	daily := ""
	if s.Daily != nil {
		daily = s.Daily.String()
	}
	return []FieldChange{
		{Field: "table", To: table},
		{Field: "expire.column", To: s.Expire.Column},
		{Field: "expire.after", To: s.Expire.After},
		{Field: "expire.zone", To: s.Expire.Zone},
		{Field: "column type", To: string(s.Expire.Type)},
		{Field: "column number", To: strconv.Itoa(int(s.Expire.Number))},
		{Field: "key", To: strings.Join(key, ", ")},
		{Field: "cascades to", To: strings.Join(s.Cascades, ", ")},
		{Field: "table's owner", To: fmt.Sprintf("the role with oid %d", s.TableOwner)},
		{Field: "every", To: s.Every},
		{Field: "daily", To: daily},
		{Field: "batch", To: strconv.Itoa(s.Batch)},
		{Field: "action", To: s.Action},
		{Field: "triggers", To: s.Triggers},
		{Field: "evidence", To: s.Evidence},
		{Field: "events.values", To: s.Events.Values},
		{Field: "owner", To: s.Owner},
		{Field: "basis", To: s.Basis},
		{Field: "latitude", To: s.Latitude},
	}
}

// fieldChanges compares two lists of the same fields; from is nil for a policy that is not in force.
func fieldChanges(from, to []FieldChange) []FieldChange {
	var all []FieldChange
	for i, field := range to {
		if from != nil {
			field.From = from[i].To
		}
		if field.From != field.To {
			all = append(all, field)
		}
	}
	return all
}

// moreFallDue reports whether a row can be due under to that is not due under from. It answers no only where that is
// certain: the same column of the same table, read in the same zone, and a time that is at least as long whatever the
// calendar does, its months and its days and hours each compared by themselves. "31 days" after "1 mon" is certain too
// for a person, and counts as more here.
func moreFallDue(from *InForce, to *Resolved) bool {
	a, b := &from.Definition, &to.Definition
	same := from.TableOID == to.TableOID && a.Column == b.Column && a.Number == b.Number && a.ColumnType == b.ColumnType && a.Zone == b.Zone
	return !same || b.After.Months < a.After.Months || b.After.exact() < a.After.exact()
}

// sameKey reports whether both versions' functions order rows alike.
func sameKey(a, b []KeyColumn) bool { return slices.Equal(a, b) }
