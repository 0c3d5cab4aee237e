package status

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/record"
	"lapse/schemas"
)

// Shown is one version of a policy, as `lapse policy show` and the page show it.
type Shown struct {
	Policy      schemas.PolicyName    `json:"policy"`
	Version     schemas.PolicyVersion `json:"version"`
	InForce     bool                  `json:"in_force"`
	State       schemas.State         `json:"state"` // of the policy
	Since       time.Time             `json:"since"`
	HeldVersion schemas.PolicyVersion `json:"held_back"`             // the version that waits for a person; 0 for none
	ReplacedAt  *time.Time            `json:"replaced_at,omitempty"` // of a former version
	Table       string                `json:"table"`
	MadeAt      time.Time             `json:"made_at"`
	MadeBy      string                `json:"made_by"`
	Reason      string                `json:"reason,omitempty"`
	Entry       string                `json:"entry,omitempty"`
	FormerEntry string                `json:"former_entry,omitempty"`
	Meaning     []Meaning             `json:"meaning"`
	Functions   []record.FunctionText `json:"functions,omitempty"`

	heldBack string // which version waits, and for what
}

// Meaning is one thing that an entry was resolved to.
type Meaning struct {
	Field string `json:"field"`
	Value string `json:"value"`
}

// ReadShown reads a version that a policy has, with its functions if sql is set. It needs only the executor's or the auditor's rights.
func ReadShown(
	ctx context.Context, conn *pgx.Conn, roles schemas.Roles, of *record.Policy, number schemas.PolicyVersion, sql bool,
) (*Shown, error) {
	is := of.At(number)
	v := &Shown{
		Policy: of.Name, Version: number, State: of.State, Since: of.Since(), HeldVersion: of.HeldVersion,
		InForce:  number == of.Version && of.State != schemas.Dropped,
		heldBack: of.HeldVersionText(), Table: is.Definition.Table, MadeAt: is.At, MadeBy: is.By, Reason: is.Reason, Entry: is.Entry, FormerEntry: is.Former, Meaning: []Meaning{},
	}
	if !v.InForce {
		v.ReplacedAt = of.ReplacedAt(number)
	}
	return v, v.complete(ctx, conn, roles, is, sql)
}

// complete adds what the database says about the version.
func (v *Shown) complete(ctx context.Context, conn *pgx.Conn, roles schemas.Roles, is *record.RecordedVersion, sql bool) (err error) {
	for _, field := range is.Fields {
		v.Meaning = append(v.Meaning, Meaning{field.Field, field.To})
	}
	v.Meaning = append(v.Meaning, Meaning{"deleter", roles.Deleter(is.Definition.TableOwner)})
	if v.InForce {
		index, known, err := is.FindIndex(ctx, conn)
		if err != nil {
			return err
		}
		if known && index == "" {
			index = "none serves: `lapse plan` says which to make"
		}
		if known {
			v.Meaning = append(v.Meaning, Meaning{"found by index", index})
		}
	}
	if sql {
		v.Functions, err = is.FunctionTexts(ctx, conn, roles)
	}
	return err
}

// Title says which version of what this is, and what happened to it.
func (v *Shown) Title() string {
	title := fmt.Sprintf("%s on %s: version %d", v.Policy, v.Table, v.Version)
	switch {
	case v.HeldVersion == v.Version && !v.InForce:
		return title + ", held back"
	case v.InForce:
		return title + fmt.Sprintf(", %s since %s", v.State, instant(v.Since))
	case v.ReplacedAt != nil:
		return title + ", replaced at " + instant(*v.ReplacedAt)
	case v.State == schemas.Dropped:
		return title + fmt.Sprintf(", %s since %s", v.State, instant(v.Since))
	}
	return title + ", never in force"
}

// HeldVersionText says which version waits and for what; "" for none.
func (v *Shown) HeldVersionText() string { return v.heldBack }

// Made says who made the version, when and why.
func (v *Shown) Made() string {
	return fmt.Sprintf("made at %s by %s%s", instant(v.MadeAt), v.MadeBy, because(v.Reason))
}

// FunctionTitle is the title of one of a version's functions.
func FunctionTitle(f *record.FunctionText) string {
	switch {
	case f.Text == "" && f.Differs == "":
		return f.Name + ": none: only a version in force or held back has functions"
	case f.Differs != "":
		return fmt.Sprintf("%s %s: it differs from what this lapse makes, and `lapse apply` refuses functions that it did not make", f.Name, f.Differs)
	}
	return f.Name + ", as this lapse makes it:"
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// because formats a reason for the end of a line.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
