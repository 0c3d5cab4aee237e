package doctor

import (
	"context"
	"fmt"
	"time"

	"lapse/planner/record"
)

// checkExecutors checks whether an executor is at work while policies are late.
func (e *examination) checkExecutors(ctx context.Context) ([]Finding, error) {
	if len(e.policies) == 0 {
		return nil, nil
	}
	var now time.Time
	if err := e.Conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err != nil {
		return nil, err
	}
	late, err := record.Unattended(ctx, e.Conn, e.policies, now)
	if err != nil {
		return nil, err
	}
	if len(late) > 0 {
		return advise(Fail, "start `lapse run` or `lapse serve`", "no executor has reported within two minutes: %s", record.UnattendedText(late)), nil
	}
	return ok("no policy is late by more than its latitude because none runs"), nil
}

// checkStays checks why due rows stay: a policy that keeps them until a person acts is as bad as one that cannot work.
func (e *examination) checkStays(ctx context.Context) ([]Finding, error) {
	if len(e.policies) == 0 {
		return nil, nil
	}
	whole, err := record.Stopped(ctx, e.Conn)
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := e.Conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err != nil {
		return nil, err
	}
	var found []Finding
	for i := range e.policies {
		p := &e.policies[i]
		for _, s := range p.Stays(now, whole, p.Said...) {
			if !s.NeedsPerson {
				continue
			}
			detail := s.Detail
			if detail == "" {
				detail = s.Reason.Means()
			}
			found = append(found, advise(Fail, fmt.Sprintf("`lapse status` says how many they are, and since when; `lapse plan %s` counts them", p.Name),
				"policy %s, %s: %s", p.Name, s.Reason, detail)...)
		}
	}
	if len(found) == 0 {
		return ok("none that needs a person"), nil
	}
	return found, nil
}
