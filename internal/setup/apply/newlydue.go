package apply

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/survey"
	"lapse/schemas"
)

// NewlyDue says how many rows are due under a change's new version, and how many more than under the version in force. Both are counted with
// one cutoff, before anything is written.
type NewlyDue struct {
	Version schemas.PolicyVersion `json:"version"`
	Due     int64                 `json:"due"`
	DueIs   survey.Count          `json:"due_is,omitempty"`
	Oldest  *time.Time            `json:"oldest_due,omitempty"`
	Former  schemas.PolicyVersion `json:"former_version,omitempty"` // 0 if there was none
	Was     int64                 `json:"former_due"`
	// Nested says that all rows that were due still are, so the difference of the counts is the number of newly due rows.
	Nested     bool       `json:"nested"`
	Newly      *int64     `json:"rows,omitempty"` // nil if the counts do not tell
	NotCounted string     `json:"not_counted,omitempty"`
	FirstRun   *time.Time `json:"first_run,omitempty"` // if the policy is armed now

	Local *survey.LocalTime `json:"local_time,omitempty"`

	policy schemas.PolicyName
}

// String describes the counts in one line.
func (n *NewlyDue) String() string {
	if n.NotCounted != "" {
		return fmt.Sprintf("more rows fall due, which were not counted (%s): `lapse plan %s` counts them", n.NotCounted, n.policy)
	}
	var text string
	switch {
	case n.Former == 0:
		text = fmt.Sprintf("%s due under version %d", n.rows(), n.Version)
	case n.Newly == nil:
		text = fmt.Sprintf("%s due under version %d, and %d under version %d: which of them newly cannot be told", n.rows(), n.Version, n.Was, n.Former)
	default:
		text = fmt.Sprintf("%d rows newly fall due", *n.Newly)
		if *n.Newly == 1 {
			text = "1 row newly falls due"
		}
		text += fmt.Sprintf(" (%d under version %d, %d under version %d)", n.Due, n.Version, n.Was, n.Former)
	}
	if n.Oldest != nil {
		text += ", the oldest of " + n.Oldest.UTC().Format(time.RFC3339)
	}
	if n.FirstRun != nil {
		text += "; armed now, it would first run at " + n.FirstRun.UTC().Format(time.RFC3339)
	}
	return text
}

func (n *NewlyDue) rows() string {
	switch n.DueIs {
	case survey.Estimated:
		return fmt.Sprintf("about %d rows (an estimate) are", n.Due)
	case survey.MoreThan:
		return fmt.Sprintf("more than %d rows are", n.Due)
	}
	if n.Due == 1 {
		return "1 row is"
	}
	return fmt.Sprintf("%d rows are", n.Due)
}

// counts reports whether a person has something to decide: a policy is new, is to be armed, or makes more rows due. A change that is made
// without its table is not counted.
func (c *Change) counts() bool {
	if c.Resolved == nil || !c.Change.Writes() {
		return false
	}
	arms := c.ToState == schemas.Arming && c.FromState != schemas.Arming && c.FromState != schemas.Armed
	return c.Kind == change.New || c.HeldVersion != 0 || c.MoreFallDue || arms
}

// count counts what becomes due under a change. If it cannot, it says so with the change, which can still be made. It returns an error if the
// rows do not fit the policy.
func (a *Applier) count(ctx context.Context, c *Change) yamldoc.Errors {
	if !c.counts() || a.Draft == nil {
		return nil
	}
	n := &NewlyDue{Version: cmp.Or(c.HeldVersion, c.ToVersion), policy: c.Policy}
	c.NewlyDue = n
	next, former, err := change.Survey(ctx, a.Draft, survey.Ask{AtMost: a.CountAtMost}, &c.Change)
	switch {
	case err != nil:
		n.NotCounted = err.Error()
		return nil
	case next.Trouble != "":
		n.NotCounted = next.Trouble
		return nil
	case former != nil && former.Trouble != "":
		n.NotCounted = former.Trouble
		return nil
	}
	if first, err := c.NextRun(next.At); err == nil && !first.Before(next.At) {
		n.FirstRun = &first
	} else if err == nil {
		n.FirstRun = &next.At // at once
	}
	n.Due, n.DueIs, n.Oldest, n.Local = next.Due, next.DueIs, next.Oldest, next.Local
	if next.Unread != nil && next.Unread.Rows > 0 {
		c.Warnings = append(c.Warnings, next.Unread.String())
	}
	if former == nil {
		return c.Misfits(next)
	}
	n.Former, n.Was, n.Nested = c.FromVersion, former.Due, c.Nested()
	if newly := n.Due - n.Was; n.Nested && next.DueIs == survey.Exact && former.DueIs == survey.Exact {
		n.Newly = &newly
	}
	return c.Misfits(next)
}

// recordCount records the count for lapse status: no one else counts for a policy that observes.
func (w *applying) recordCount(ctx context.Context, c *Change, id schemas.PolicyID) error {
	n := c.NewlyDue
	if n == nil || n.NotCounted != "" {
		return nil
	}
	_, err := w.Conn.Exec(ctx, `
		insert into lapse.looked (policy_id, counted_at, due, exact) values ($1, clock_timestamp(), $2, $3)
		on conflict (policy_id) do update set counted_at = excluded.counted_at, due = excluded.due, exact = excluded.exact, oldest = null`,
		id, n.Due, n.DueIs == survey.Exact)
	if err != nil {
		return fmt.Errorf("record how much is due under policy %s: %w", c.Policy, err)
	}
	return nil
}

// Misfits returns an error for each way in which the surveyed rows do not fit the policy, if a person has something to decide.
func (c *Change) Misfits(s *survey.Survey) yamldoc.Errors {
	if !c.counts() {
		return nil
	}
	return c.Resolved.Policy.InFile(survey.RowsFit(c.Resolved, s))
}
