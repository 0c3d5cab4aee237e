package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/schemas"
)

// Policy is all that is on record about a policy, in force or dropped: its versions and states, each with who, when and why. It contains names and
// instants, but nothing from the policy's rows.
type Policy struct {
	ID          schemas.PolicyID
	Name        schemas.PolicyName
	Version     schemas.PolicyVersion // the version in force, or the last that was
	State       schemas.State
	HeldVersion schemas.PolicyVersion // the version that waits for a person; 0 for none
	Versions    []RecordedVersion     // oldest first
	States      []RecordedState       // oldest first
}

// RecordedVersion is a version for a person: with who made it, when and why, and what it changed.
type RecordedVersion struct {
	Version
	At      time.Time
	By      string
	Reason  string
	Former  string        // the entry of the version before
	Fields  []FieldChange // what it was resolved to: only To is set
	Changes []FieldChange // from the version in force before
	MoreDue bool          // more may fall due than under the version in force before
}

// RecordedState is a state that a policy came into, or that was written again.
type RecordedState struct {
	Version schemas.PolicyVersion
	State   schemas.State
	At      time.Time
	By      string
	Reason  string
}

// Names are the names of all policies on record, dropped ones too, in order.
func Names(ctx context.Context, q database.Querier) ([]string, error) {
	rows, err := q.Query(ctx, `select distinct p.name from lapse.policy p order by 1`)
	if err != nil {
		return nil, fmt.Errorf("list the policies on record: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// NamesInForce are the names of the policies that are not dropped, in order.
func NamesInForce(ctx context.Context, q database.Querier) ([]string, error) {
	rows, err := q.Query(ctx, `select g.name from lapse.gate g where g.state <> 'dropped' order by 1`)
	if err != nil {
		return nil, fmt.Errorf("list the policies in force: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Load returns what is on record of a policy, nil if there never was one of that name. It needs no more than the
// auditor's rights, or the executor's.
func Load(ctx context.Context, q database.Querier, name schemas.PolicyName) (*Policy, error) {
	r := &Policy{Name: name}
	if err := r.loadVersions(ctx, q); err != nil {
		return nil, fmt.Errorf("load the versions of policy %s: %w", name, err)
	}
	if len(r.Versions) == 0 {
		return nil, nil
	}
	var err error
	r.States, err = database.Collect[RecordedState](ctx, q, `
		select s.version, s.state, s.changed_at, s.changed_by, s.reason
		  from lapse.policy_state s
		 where s.policy_id = $1
		 order by s.changed_at, s.version`, r.ID)
	if err != nil {
		return nil, fmt.Errorf("load the states of policy %s: %w", name, err)
	}
	gate, err := database.Collect[struct {
		Version     schemas.PolicyVersion
		State       schemas.State
		HeldVersion schemas.PolicyVersion
	}](ctx, q, `select g.version, g.state, coalesce(g.held_back, 0) from lapse.gate g where g.policy_id = $1`, r.ID)
	if err == nil && len(gate) != 1 {
		err = fmt.Errorf("it has %d gates", len(gate))
	}
	if err != nil {
		return nil, fmt.Errorf("load the state of policy %s: %w", name, err)
	}
	r.Version, r.State, r.HeldVersion = gate[0].Version, gate[0].State, gate[0].HeldVersion
	return r, nil
}

func (r *Policy) loadVersions(ctx context.Context, q database.Querier) error {
	rows, err := database.Collect[struct {
		Is                     Version
		At                     time.Time
		By, Reason             string
		Entry, Former, OwnedBy string
		WasInForce             bool
	}](ctx, q, `
		select `+VersionSQL+`, p.made_at, p.made_by, p.reason, coalesce(p.entry, ''), coalesce(p.former_entry, ''),
		       coalesce((select r.rolname::text from pg_roles r where r.oid = (p.spec ->> 'table_owner')::oid), ''),
		       exists (select from lapse.policy_state s where s.policy_id = p.id and s.version = p.version)
		  from lapse.policy p
		 where p.name = $1
		 order by p.version`, r.Name)
	if err != nil {
		return err
	}
	var before *Version
	var fields []FieldChange
	for i := range rows {
		row := &rows[i]
		is, d := &row.Is, &row.Is.Definition
		is.Entry = row.Entry
		v := RecordedVersion{Version: *is, At: row.At, By: row.By, Reason: row.Reason, Former: row.Former}
		all := is.Spec.Lines(d.Table)
		for i := range all {
			if all[i].Field == TableOwnerField && row.OwnedBy != "" {
				all[i].To = row.OwnedBy
			}
		}
		v.Changes = FieldChanges(fields, all)
		if before != nil {
			v.MoreDue = MoreFallDue(before, is)
			if before.Table != is.Table && !slices.ContainsFunc(v.Changes, func(c FieldChange) bool { return c.Field == "table" }) {
				v.Changes = append(v.Changes, FieldChange{Field: "table", From: d.Table, To: "another table of that name"})
			}
		}
		for _, field := range all {
			if field.To != "" {
				v.Fields = append(v.Fields, field)
			}
		}
		if r.ID = d.ID; row.WasInForce || before == nil {
			before, fields = is, all
		}
		r.Versions = append(r.Versions, v)
	}
	return nil
}

// FindIndex names the index that finds due rows of the version's table today, "" for none. known is false if the login may not list the table's
// partitions.
func (v *RecordedVersion) FindIndex(ctx context.Context, q database.Querier) (name string, known bool, err error) {
	leaves, _, err := database.FindLeaves(ctx, q, &database.Table{OID: v.Table, Name: v.Definition.Table})
	if schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege {
		return "", false, nil
	}
	if err == nil {
		var found index.Found
		found, err = index.Find(ctx, q, &v.Definition, leaves, index.AdvisedPrefix)
		name = found.Name
	}
	return name, err == nil, err
}

// FunctionText is one of a version's functions in the database.
type FunctionText struct {
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"` // what it does, as SQL comments; "" if it differs from what this program makes
	Text    string `json:"text,omitempty"`    // "" if there is no such function: the version is not in force
	Differs string `json:"differs,omitempty"` // how it differs from what this program makes; "" if it does not
}

// FunctionTexts returns a version's functions as the database has them, the deletion function first. It reads only the system catalog.
func (v *RecordedVersion) FunctionTexts(ctx context.Context, q database.Querier, roles schemas.Roles) ([]FunctionText, error) {
	script, err := v.Definition.Text()
	if err != nil {
		return nil, err
	}
	ours, err := schemas.ParseFunctions(script, roles.Deleter(v.Definition.TableOwner))
	if err != nil {
		return nil, err
	}
	texts := make([]FunctionText, 0, len(ours))
	for i := range ours {
		text := FunctionText{Name: ours[i].Name}
		found, err := database.Collect[struct{ Name, Text string }](ctx, q, `
			select p.proname, pg_get_functiondef(p.oid)
			  from pg_proc p
			 where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse') and 'lapse.' || p.proname = $1
			   and p.prokind in ('f', 'p')`, text.Name)
		if err != nil {
			return nil, fmt.Errorf("read the text of %s: %w", text.Name, err)
		}
		if len(found) == 1 {
			text.Text = found[0].Text
			if text.Differs, err = differs(ctx, q, &ours[i]); err != nil {
				return nil, err
			}
			if text.Differs == "" {
				text.Comment = commentAbove(script, text.Name)
			}
		} else if len(found) > 1 {
			text.Differs = fmt.Sprintf("exists %d times", len(found))
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// commentAbove is the comment above a function in a script that makes it.
func commentAbove(script, function string) string {
	before, _, _ := strings.Cut(script, "create function "+function+"(")
	lines := strings.SplitAfter(before, "\n")
	from := len(lines) - 1
	for from > 0 && strings.HasPrefix(lines[from-1], "--") {
		from--
	}
	return strings.Join(lines[from:], "")
}

// differs says how the database's function of that name differs from the expected one; "" if it does not.
func differs(ctx context.Context, q database.Querier, ours *schemas.Function) (string, error) {
	rows, err := q.Query(ctx, schemas.FunctionTexts, []string{strings.TrimPrefix(ours.Name, "lapse.")})
	if err != nil {
		return "", fmt.Errorf("read the text of %s: %w", ours.Name, err)
	}
	found, err := schemas.ReadFunctions(rows)
	if err != nil || len(found) != 1 {
		return "", err
	}
	return ours.Differs(&found[0]), nil
}

// At returns a version, or nil.
func (r *Policy) At(number schemas.PolicyVersion) *RecordedVersion {
	for i := range r.Versions {
		if r.Versions[i].Definition.Version == number {
			return &r.Versions[i]
		}
	}
	return nil
}

// HeldVersionText says which version waits and for what, and what is deleted meanwhile; "" if none waits.
func (r *Policy) HeldVersionText() string { return HeldVersionText(r.Name, r.Version, r.HeldVersion) }

// ReplacedAt is when another version replaced a version in force; nil if none did, or if that one never was in force.
func (r *Policy) ReplacedAt(number schemas.PolicyVersion) *time.Time {
	was := false
	for i := range r.States {
		switch s := &r.States[i]; {
		case s.Version == number:
			was = true
		case was && s.Version > number:
			return &s.At
		}
	}
	return nil
}

// Since is when the policy came into its present state: the first of the last states that are the same.
func (r *Policy) Since() time.Time {
	var since time.Time
	for i := len(r.States) - 1; i >= 0 && r.States[i].State == r.State; i-- {
		since = r.States[i].At
	}
	return since
}

// LastTable is the last table of the policies of a name, dropped ones included; 0 if there was none.
func LastTable(ctx context.Context, q database.Querier, name string) (table uint32, err error) {
	err = q.QueryRow(ctx, `select coalesce((select p.table_oid from lapse.policy p where p.name = $1 order by p.made_at desc, p.version desc limit 1), 0)`, name).Scan(&table)
	if err != nil {
		return 0, fmt.Errorf("look for the table of policy %s: %w", name, err)
	}
	return table, nil
}
