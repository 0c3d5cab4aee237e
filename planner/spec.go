package planner

import (
	"bytes"
	"encoding/json"
	"fmt"

	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// spec is a policy version as lapse.policy keeps it: the policy file's entry in one spelling, and what it was found to
// mean in this database. Two versions are the same if their specs are. The state is not part of it.
type spec struct {
	policyfile.Terms                       // as Terms.Recorded has them, the latitude in PostgreSQL's spelling
	Expire           expiry.Record         `json:"expire"`
	Key              []functions.KeyColumn `json:"key"`
	Cascades         []string              `json:"cascades"` // the tables that rows go with, partitioned ones by their roots
	// TableOwner is the role that owns the table. Its deleter owns the functions.
	TableOwner uint32           `json:"table_owner"`
	Every      *expiry.Interval `json:"every,omitempty"`
	Apart      *expiry.Interval `json:"apart,omitempty"` // the longest time between two runs of Cron, by which lapse.measure judges the clock
	WhereRead  *functions.Where `json:"where_read,omitempty"`
	Slices     []expiry.Column  `json:"slices,omitempty"` // what shards go by
	Ranges     bool             `json:"ranges,omitempty"` // whether lapse.open_run may cut leaves into ranges
	Action     string           `json:"action"`
	Soft       *expiry.Column   `json:"soft,omitempty"`    // that a soft action sets
	Trusted    []trustedCode    `json:"trusted,omitempty"` // what was found when the triggers were trusted
	Due        *schemas.Due     `json:"due,omitempty"`     // by which the auditor judges each row, where evidence is due
	// Functions is the digest of the text of the version's functions, but for its numbers. Another program may write another
	// text for the same policy, and no batch runs by a text that the program which calls it would not write.
	Functions string            `json:"functions,omitempty"`
	Floor     []functions.Floor `json:"floor,omitempty"` // of lapse.yaml, about this table and what goes along
	// HeldAgainst is the version that was in force when this one was held back because more falls due under it. It is no
	// difference between two versions.
	HeldAgainst schemas.PolicyVersion `json:"held_against,omitempty"`
}

// readSpec refuses what it does not know: a newer program may have written it.
func readSpec(text []byte) (spec, error) {
	var s spec
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("read a policy's spec: %w: use the newest lapse that this database has seen", err)
	}
	return s, nil
}

// version is what a policy version says: what is written when it comes into force, and what others are compared with.
type version struct {
	table      uint32
	definition functions.Definition // its version is zero until Write
	spec       spec
	entry      string // as it was written in the file; "" where it is of no matter
}

// specColumns are what storedPolicy is read from, p being lapse.policy.
const specColumns = `p.id, p.version, p.name, p.table_oid, p.table_name, p.spec::text`

// storedPolicy is a version on record.
type storedPolicy struct {
	ID        schemas.PolicyID
	Version   schemas.PolicyVersion
	Name      schemas.PolicyName
	TableOID  uint32
	TableName string
	SpecText  string
}

// definition is what the version's functions were made from.
func (s *storedPolicy) definition() (functions.Definition, spec, error) {
	text, err := readSpec([]byte(s.SpecText))
	if err != nil {
		return functions.Definition{}, text, fmt.Errorf("policy %s version %d: %w", s.Name, s.Version, err)
	}
	return functions.Definition{
		ID: s.ID, Version: s.Version, Name: s.Name, Table: s.TableName, Expire: text.Expire.Kind, Key: text.Key, Batch: text.Batch,
		TableOwner: text.TableOwner, Action: actionOf(text.Action), Soft: text.Soft, SearchPath: text.Triggers.SearchPath, Slices: text.Slices, Floors: text.Floor, Where: text.WhereRead,
	}, text, nil
}

// schedule says when the version runs.
func (s *spec) schedule(of schemas.PolicyName) schedule.Schedule {
	when := schedule.Schedule{Daily: s.Daily, Cron: s.Cron, Window: s.Window, Spread: schedule.SpreadOf(string(of))}
	if s.Every != nil {
		when.Every = *s.Every
	}
	return when
}
