package record

import (
	"fmt"
	"slices"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// ActionName is an action's kind as in the record, and actionOf the kind of such a name.
func ActionName(kind string) string {
	if kind == "" {
		return policyfile.ActionDelete
	}
	return kind
}

func actionOf(name string) string {
	if name == policyfile.ActionDelete {
		return ""
	}
	return name
}

// FieldChange is a field of a policy that differs between the file and what is in force.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// String is the field's line for a person.
func (f FieldChange) String() string {
	switch {
	case f.From == "":
		return fmt.Sprintf("+ %s: %s", f.Field, f.To)
	case f.To == "":
		return fmt.Sprintf("- %s: %s", f.Field, f.From)
	}
	return fmt.Sprintf("~ %s: %s → %s", f.Field, f.From, f.To)
}

// TableOwnerField is the role that owns the table, by its oid, because a role can be renamed.
const TableOwnerField = "table's owner"

// shownFirst is the order in which a person reads the terms, and what was resolved in the database. Others come last.
var shownFirst = []string{
	"every", "daily", "cron", "window", "where", "where means", "where's columns", "batch", "pace", "rate", "max_rows_per_run", "max_fraction",
	"shards", "index", "action", "triggers", "trusted code", "evidence", "events.values", "events.columns", "moves", "owner", "basis", "latitude",
}

// Lines are the spec's fields for a person.
func (s *Spec) Lines(table string) []FieldChange {
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
		{Name: TableOwnerField, Value: fmt.Sprintf("the role with oid %d", s.TableOwner)},
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

// FieldChanges compares two lists of fields; those of the expiry depend on its kind. from is nil for a policy that is not in force.
func FieldChanges(from, to []FieldChange) []FieldChange {
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

// actionText shows the action to a person.
func (s *Spec) actionText() string {
	if s.Soft == nil {
		return s.Action
	}
	return fmt.Sprintf("%s, sets %s %s (%d)", s.Action, schemas.Identifier(s.Soft.Name), s.Soft.Type, s.Soft.Number)
}
