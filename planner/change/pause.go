package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

// What a person says about a policy without its file. Each function returns a Change for Write; one that would change nothing is Unchanged.
// They lock and check nothing of the policy's table.

// Pause stops the policy.
func Pause(p *record.InForce) Change { return restate(p, schemas.Paused, p.HeldVersion) }

// Arm lets the policy delete, whatever is due under it: under the version that is held back, or else the one in force.
func Arm(p *record.InForce) Change {
	switch {
	case p.Held != nil:
		c := restate(p, schemas.Arming, 0)
		c.Kind, c.ToVersion = Restated, p.HeldVersion
		return c
	case record.Live(p.State):
		return restate(p, p.State, 0)
	}
	return restate(p, schemas.Arming, 0)
}

// ArmVersion is Arm for the version that a person names: only that version is accepted. If it is the one in force, another one stays held
// back.
func ArmVersion(p *record.InForce, version schemas.PolicyVersion) (Change, error) {
	switch {
	case version == p.HeldVersion, version == p.Version && p.Held == nil:
		return Arm(p), nil
	case version == p.Version && record.Live(p.State):
		return restate(p, p.State, p.HeldVersion), nil
	case version == p.Version:
		return restate(p, schemas.Arming, p.HeldVersion), nil
	}
	what := fmt.Sprintf("in force is version %d", p.Version)
	if p.HeldVersion != 0 {
		what += fmt.Sprintf(", and version %d is held back", p.HeldVersion)
	}
	return Change{}, fmt.Errorf("policy %s: version %d is not there to be armed: %s: see what would go with `lapse plan %[1]s`", p.Name, version, what)
}

// Resume returns a paused policy to its state before the pause. A policy that was armed becomes arming; it is held back if more may fall due under
// its present version than was accepted.
func Resume(ctx context.Context, q database.Querier, p *record.InForce) (Change, error) {
	if p.State != schemas.Paused {
		return restate(p, p.State, p.HeldVersion), nil
	}
	var before schemas.State
	err := q.QueryRow(ctx, `
		select s.state
		  from lapse.policy_state s
		 where s.policy_id = $1 and s.state not in ('paused', 'dropped')
		 order by s.version desc, s.changed_at desc
		 limit 1`, p.ID).Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Change{}, fmt.Errorf("find the state of policy %s before the pause: %w", p.Name, err)
	}
	if !record.Live(before) {
		return restate(p, schemas.Observing, p.HeldVersion), nil
	}
	former, err := loadFormerVersions(ctx, q)
	if err != nil {
		return Change{}, err
	}
	if beyond := former.beyond(p, p.ID, p.Current()); beyond != "" {
		c := restate(p, schemas.Observing, p.Version)
		c.HeldAgainst = beyond
		return c, nil
	}
	return restate(p, schemas.Arming, beside(p)), nil
}

// beside is the version that is held back while another is in force, 0 for none.
func beside(p *record.InForce) schemas.PolicyVersion {
	if p.Held == nil {
		return 0
	}
	return p.HeldVersion
}

// restate changes the state of the version in force.
func restate(p *record.InForce, to schemas.State, held schemas.PolicyVersion) Change {
	c := Change{
		Kind: Restated, Policy: p.Name, Table: p.TableName, ID: p.ID, FromVersion: p.Version, ToVersion: p.Version,
		FromState: p.State, ToState: to, HeldVersion: held, fromHeld: p.HeldVersion, careful: true, accepted: true,
	}
	if to == p.State && held == p.HeldVersion {
		c.Kind = Unchanged
	}
	return c
}
