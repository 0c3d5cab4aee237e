package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// What a person says of a policy beside its file. Each is a Change for Write; one that would change nothing is Unchanged.
// Nothing of the policy's table is locked or looked at.

// Pause stops the policy.
func (p *InForce) Pause() Change { return p.restate(schemas.Paused, p.HeldBack) }

// Arm lets the policy delete, whatever falls due under it.
func (p *InForce) Arm() Change {
	if live(p.State) {
		return p.restate(p.State, 0)
	}
	return p.restate(schemas.Arming, 0)
}

// Resume takes a paused policy back to where it was before the pause. One that deleted goes by way of arming, and is held back
// if more may fall due under its present version than under what was accepted.
func (p *InForce) Resume(ctx context.Context, q Querier) (Change, error) {
	if p.State != schemas.Paused {
		return p.restate(p.State, p.HeldBack), nil
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
	if !live(before) {
		return p.restate(schemas.Observing, p.HeldBack), nil
	}
	former, err := loadFormerVersions(ctx, q)
	if err != nil {
		return Change{}, err
	}
	if beyond := former.beyond(p, p.ID, p.version()); beyond != nil {
		c := p.restate(schemas.Observing, p.Version)
		c.HeldAgainst = beyond.what
		return c, nil
	}
	return p.restate(schemas.Arming, 0), nil
}

// restate is the change of a version in force to another state.
func (p *InForce) restate(to schemas.State, held schemas.PolicyVersion) Change {
	c := Change{
		Kind: Restated, Policy: p.Name, Table: p.TableName, ID: p.ID, FromVersion: p.Version, ToVersion: p.Version,
		FromState: p.State, ToState: to, HeldBack: held, careful: true,
	}
	if to == p.State && held == p.HeldBack {
		c.Kind = Unchanged
	}
	return c
}
