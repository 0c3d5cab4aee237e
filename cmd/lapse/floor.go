package main

import (
	"context"
	"fmt"
	"strings"

	"lapse/internal/config"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// floorsOf converts the floors of lapse.yaml for the planner.
func floorsOf(s *config.Settings) []policyfile.Floor {
	floors := make([]policyfile.Floor, len(s.Floors))
	for i, f := range s.Floors {
		floors[i] = policyfile.Floor(f)
	}
	return floors
}

// keepAboveFloors refuses to start the deletion of a policy that is below a floor of lapse.yaml. The floor may have been raised since.
func keepAboveFloors(ctx context.Context, db database.DB, s *config.Settings, p *record.InForce, c *change.Change) error {
	if c.ToState != schemas.Arming && c.ToState != schemas.Armed || !c.Writes() {
		return nil
	}
	if waiting := p.Waiting(); waiting != nil && c.ToVersion == waiting.Version {
		p = waiting
	}
	problems, err := resolve.BelowFloor(ctx, db, p, floorsOf(s))
	if err != nil || len(problems) == 0 {
		return err
	}
	return fmt.Errorf("policy %s is not armed: %s", p.Name, strings.Join(problems, "; "))
}
