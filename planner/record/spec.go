package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// Spec is a policy version as lapse.policy keeps it: the policy file's entry in canonical form, and what it was resolved to in this database. Two
// versions are the same if their specs are. The state is not part of it.
type Spec struct {
	policyfile.Terms                       // as Terms.Recorded has them, the latitude in PostgreSQL's spelling
	Expire           expiry.Record         `json:"expire"`
	Key              []functions.KeyColumn `json:"key"`
	Cascades         []string              `json:"cascades"` // the tables in which cascades delete, partitioned ones by their roots
	// TableOwner is the role that owns the table. Its deleter owns the functions.
	TableOwner uint32           `json:"table_owner"`
	Every      *expiry.Interval `json:"every,omitempty"`
	Apart      *expiry.Interval `json:"apart,omitempty"` // the longest time between two runs of Cron: lapse.measure judges the clock by it
	WhereRead  *functions.Where `json:"where_read,omitempty"`
	Slices     []expiry.Column  `json:"slices,omitempty"` // the columns that hash slices are computed from
	Ranges     bool             `json:"ranges,omitempty"` // whether lapse.open_run may cut leaves into ranges
	Action     string           `json:"action"`
	Soft       *expiry.Column   `json:"soft,omitempty"`    // the column that a soft action sets
	Trusted    []TrustedCode    `json:"trusted,omitempty"` // the code that was trusted, as found then
	Due        *schemas.Due     `json:"due,omitempty"`     // how the auditor judges each row, if evidence says due
	// Functions is the digest of the text of the version's functions, without its numbers. Another program may write another text for the same
	// policy, and an executor runs only the text that it would write itself.
	Functions string            `json:"functions,omitempty"`
	Floor     []functions.Floor `json:"floor,omitempty"` // of lapse.yaml, about this table and what a cascade deletes
	// HeldAgainst is the version that was in force when this one was held back because more falls due under it. It does not make two versions
	// different.
	HeldAgainst schemas.PolicyVersion `json:"held_against,omitempty"`
}

// readSpec refuses keys that it does not know: a newer program may have written them.
func readSpec(text []byte) (Spec, error) {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("read a policy's spec: %w: use the newest lapse that this database has seen", err)
	}
	return s, nil
}

// Version is a policy version: it is written when it comes into force, read back from the record, and compared with others.
type Version struct {
	Table      uint32
	Definition functions.Definition // its ID and version are zero until Write
	Spec       Spec
	Entry      string // as it was written in the file; "" where it is of no matter
}

// VersionSQL selects what Scan reads; p is lapse.policy.
const VersionSQL = `jsonb_build_object('id', p.id, 'version', p.version, 'name', p.name, 'table', p.table_oid::bigint, 'table_name', p.table_name, 'spec', p.spec)::text`

// Scan reads a version on record; null leaves it empty.
func (v *Version) Scan(from any) error {
	text, is := from.(string)
	if !is {
		return nil
	}
	var row struct {
		ID        schemas.PolicyID      `json:"id"`
		Version   schemas.PolicyVersion `json:"version"`
		Name      schemas.PolicyName    `json:"name"`
		Table     uint32                `json:"table"`
		TableName string                `json:"table_name"`
		Spec      json.RawMessage       `json:"spec"`
	}
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		return fmt.Errorf("read a policy version: %w", err)
	}
	s, err := readSpec(row.Spec)
	if err != nil {
		return fmt.Errorf("policy %s version %d: %w", row.Name, row.Version, err)
	}
	*v = Version{Table: row.Table, Spec: s, Definition: functions.Definition{
		ID: row.ID, Version: row.Version, Name: row.Name, Table: row.TableName, Expire: s.Expire.Kind, Key: s.Key, Batch: s.Batch,
		TableOwner: s.TableOwner, Action: actionOf(s.Action), Soft: s.Soft, SearchPath: s.Triggers.SearchPath, Slices: s.Slices, Floors: s.Floor, Where: s.WhereRead,
	}}
	return nil
}

// Schedule says when the version runs.
func (s *Spec) Schedule(of schemas.PolicyName) schedule.Schedule {
	when := schedule.Schedule{Daily: s.Daily, Cron: s.Cron, Window: s.Window, Spread: schedule.SpreadOf(string(of))}
	if s.Every != nil {
		when.Every = *s.Every
	}
	return when
}

// SliceCount is the number of slices that each leaf is cut into.
func (s *Spec) SliceCount() int {
	if s.Shards == nil {
		return 1
	}
	return s.Shards.Count
}

// TrustedCode is a trigger, a rule or a function that a policy trusts, as apply found it. A batch continues only if everything that would run inside
// it is among these, with the same digest: see lapse.code.
type TrustedCode struct {
	Relation uint32 `json:"relation"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Digest   string `json:"digest"`
	On       string `json:"on"` // the relation's name, for a person
}

// trustedText shows them to a person.
func trustedText(all []TrustedCode) string {
	texts := make([]string, 0, len(all))
	for _, c := range all {
		const shown = 12 // of the digest
		texts = append(texts, fmt.Sprintf("%s %s on %s (%.*s)", c.Kind, schemas.Identifier(c.Name), c.On, shown, c.Digest))
	}
	return strings.Join(texts, ", ")
}

// TrustedJSON is the value for lapse.policy, nil for a policy that trusts nothing.
func (s *Spec) TrustedJSON() (*string, error) {
	if !s.Triggers.Trusted {
		return nil, nil
	}
	text, err := json.Marshal(append([]TrustedCode{}, s.Trusted...))
	if err != nil {
		return nil, fmt.Errorf("write what is trusted: %w", err)
	}
	kept := string(text)
	return &kept, nil
}
