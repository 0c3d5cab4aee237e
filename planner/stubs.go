package planner

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

var errUnbuilt = errors.New("planner: under construction")

// Resolved is a policy of the file that has been compared with the database: everything it names is there and fit.
type Resolved struct {
	Policy     Policy
	Definition Definition // ID and Version are zero until Write
	Schedule   Schedule
	TableOID   uint32
	TableOwner string     // the role
	Leaves     []Relation // the table itself, or its partitions that hold rows, ascending by oid
	Cascades   []Relation // what foreign keys take along, as the WAL names them, ascending by oid
	Published  []Relation // what must be in a publication: the table, and the roots of what cascades reach
	Index      string     // the index that serves, "" when there is none
	Warnings   []string
}

// Resolve compares a policy of the file with the database. Its error is FileErrors or a failed query.
func Resolve(ctx context.Context, db DB, file string, p Policy) (*Resolved, error) {
	return nil, errUnbuilt
}

// ChangeKind says what apply does about a policy.
type ChangeKind string

// The kinds of a change.
const (
	New       ChangeKind = "new"
	Changed   ChangeKind = "changed" // another version
	Restated  ChangeKind = "state"   // the same version in another state
	Removed   ChangeKind = "dropped" // out of the file, and pruned
	Missing   ChangeKind = "missing" // out of the file, and left in force
	Unchanged ChangeKind = "unchanged"
)

// FieldChange is one field of a policy that differs between the file and what is in force.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// Change is what apply would do about one policy. It marshals to JSON as it stands and prints itself as a diff.
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
	Warnings    []string      `json:"warnings,omitempty"`

	Resolved *Resolved `json:"-"` // nil for dropped and missing
}

// Writes reports whether Write would change anything.
func (c *Change) Writes() bool { return c.Kind != Unchanged && c.Kind != Missing }

// Diff is the change for a person, several lines.
func (c *Change) Diff() string { return "" }

// Difference compares the policies of a file with what is in force. Drops come first, then the file's order.
func Difference(ctx context.Context, db DB, file *PolicyFile, prune bool) ([]Change, error) {
	return nil, errUnbuilt
}

// Write brings one change into force, in the caller's transaction.
func Write(ctx context.Context, tx pgx.Tx, c *Change, roles schemas.Roles, reason string) (PolicyID, PolicyVersion, error) {
	return 0, 0, errUnbuilt
}

// EnsureMembership sees to it that the deletion functions may work on the policy's table.
func EnsureMembership(ctx context.Context, tx pgx.Tx, r *Resolved, roles schemas.Roles) error {
	return errUnbuilt
}

// GrantError says which statement a person with the right to do so must run.
type GrantError struct {
	SQL   string
	Cause error
}

func (e *GrantError) Error() string { return e.SQL }

// Survey is what a policy would delete at an instant, and how it would go about it.
type Survey struct {
	Policy      PolicyName    `json:"policy"`
	Version     PolicyVersion `json:"version,omitempty"` // 0: not applied
	State       schemas.State `json:"state,omitempty"`
	Table       string        `json:"table"`
	At          time.Time     `json:"at"`
	Due         int64         `json:"due"`
	Oldest      *time.Time    `json:"oldest_due,omitempty"`
	Newest      *time.Time    `json:"newest_due,omitempty"`
	Method      string        `json:"method"`          // "index" or "sequential"
	Index       string        `json:"index,omitempty"` // its name
	Order       []string      `json:"order"`
	Shards      []Relation    `json:"shards"`
	RowsPerSec  float64       `json:"rows_per_second"`
	PaceFrom    string        `json:"pace_from"` // "measured" or "stated"
	Estimate    time.Duration `json:"estimate_ns"`
	Statement   string        `json:"statement"`
	Explain     string        `json:"explain,omitempty"`
	ExplainNote string        `json:"explain_note,omitempty"` // why there is no EXPLAIN
}

// SurveyInForce surveys an applied policy. A zero at is the server's clock.
func SurveyInForce(ctx context.Context, db DB, p *InForce, at time.Time) (*Survey, error) {
	return nil, errUnbuilt
}

// SurveyResolved surveys a policy that is only in a file.
func SurveyResolved(ctx context.Context, db DB, r *Resolved, at time.Time) (*Survey, error) {
	return nil, errUnbuilt
}
