package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/planner"
	"lapse/schemas"
)

// NewlyDue says what more falls due under a version than under the one before it, both counted at one cutoff.
type NewlyDue struct {
	Version schemas.PolicyVersion `json:"version"`
	Due     int64                 `json:"due"`
	Former  schemas.PolicyVersion `json:"former_version,omitempty"` // 0: there was none
	Was     int64                 `json:"former_due"`
	// Nested says that what was due still is, so that the difference is what newly falls due.
	Nested     bool   `json:"nested"`
	Newly      *int64 `json:"rows,omitempty"` // where it can be told
	NotCounted string `json:"not_counted,omitempty"`

	policy schemas.PolicyName
	cutoff time.Time
}

// String is the line for a person.
func (n *NewlyDue) String() string {
	switch {
	case n.NotCounted != "":
		return fmt.Sprintf("more rows fall due, which were not counted (%s): `lapse plan %s` counts them", n.NotCounted, n.policy)
	case n.Former == 0:
		return fmt.Sprintf("%d rows are due under version %d", n.Due, n.Version)
	case n.Newly == nil:
		return fmt.Sprintf("%d rows are due under version %d, and %d under version %d: which of them newly cannot be told", n.Due, n.Version, n.Was, n.Former)
	default:
		return fmt.Sprintf("%d rows newly fall due (%d under version %d, %d under version %d)", *n.Newly, n.Due, n.Version, n.Was, n.Former)
	}
}

// counts reports whether what newly falls due is of interest: more may, under another version.
func (c *Change) counts() bool {
	return (c.Kind == planner.New && c.HeldBack) || (c.Kind == planner.Changed && (c.MoreFallDue || c.HeldBack))
}

// countFormer counts what is due under the version in force, and keeps the cutoff.
func (a *Applier) countFormer(ctx context.Context, c *Change) *NewlyDue {
	if !c.counts() || a.Counting == nil {
		return nil
	}
	n := &NewlyDue{Version: c.ToVersion, policy: c.Policy}
	if c.Kind == planner.New {
		return n
	}
	n.Former = c.FromVersion
	due, err := a.count(ctx, n)
	n.Was, n.Nested = due, c.Nested()
	n.fail(err)
	return n
}

// countPresent counts what is due under the version that was written.
func (a *Applier) countPresent(ctx context.Context, c *Change, n *NewlyDue) {
	if n == nil {
		return
	}
	c.NewlyDue = n
	if n.NotCounted != "" {
		return
	}
	due, err := a.count(ctx, n)
	n.Due = due
	n.fail(err)
	if newly := n.Due - n.Was; err == nil && n.Former > 0 && n.Nested {
		n.Newly = &newly
	}
}

func (n *NewlyDue) fail(err error) {
	if err != nil {
		n.NotCounted = err.Error()
	}
}

// count counts through the policy's own function, in the executor's session: nothing of the table is read in the session that
// applies, whose login may do more than the table's owner should.
func (a *Applier) count(ctx context.Context, n *NewlyDue) (due int64, err error) {
	conn, err := a.Counting(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConn(conn)
	policies, err := planner.LoadInForce(ctx, conn)
	if err != nil {
		return 0, err
	}
	for i := range policies {
		if policies[i].Name != n.policy {
			continue
		}
		s, err := planner.SurveyInForce(ctx, conn, &policies[i], n.cutoff)
		switch {
		case err != nil:
			return 0, err
		case s.Trouble != "":
			return 0, errors.New(s.Trouble)
		}
		n.cutoff = s.At
		return s.Due, nil
	}
	return 0, errors.New("the policy is gone")
}
