package executor

import (
	"context"
	"time"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// What is due under each policy is counted once a day, whole, for the report: see lapse.snapshot.
const (
	snapshotEvery = 24 * time.Hour
	snapshotTime  = 2 * time.Minute  // a count that takes longer is given up: it keeps vacuum from removing rows
	snapshotFirst = time.Minute      // after the start
	snapshotLook  = 10 * time.Minute // whether one is due: for new policies and versions, and after another executor stopped
)

// keepSnapshots takes the snapshots that are due until ctx ends, over connections of its own, one policy at a time. Nothing waits for it.
func (e *Executor) keepSnapshots(ctx context.Context) {
	for pause := snapshotFirst; wait(ctx, pause) == nil; pause = snapshotLook {
		e.CountDue(ctx)
	}
}

// CountDue counts what is due under each policy, for the report, unless that was done within a day. What it cannot count it leaves.
func (e *Executor) CountDue(ctx context.Context) {
	if err := e.takeSnapshots(ctx); err != nil && ctx.Err() == nil {
		e.log.Debug("what is due is not counted", "error", stripped("count", err))
	}
}

// takeSnapshots takes the snapshots that are due. What keeps one policy from being counted keeps no other.
func (e *Executor) takeSnapshots(ctx context.Context) error {
	session, err := batch.Connect(ctx, e.config.Database, e.holder+"/snapshots", e.config.Limits.BatchTime, 2*snapshotTime)
	if err != nil {
		return err
	}
	defer session.Close()
	policies, err := record.LoadInForce(ctx, session.Control)
	if err != nil {
		return err
	}
	w := &worker{Executor: e, session: session}
	for i := range policies {
		p := &policies[i]
		if p.Trouble != "" || p.Outdated() != nil || w.compareSurvey(ctx, p) != nil {
			continue // nothing of it is called
		}
		if _, err := survey.Snapshot(ctx, session.Batches, session.Control, p, snapshotEvery, snapshotTime); err != nil {
			if session.Lost() || ctx.Err() != nil {
				return err
			}
			e.log.Debug("what is due under a policy is not counted", "policy", p.Name, "error", stripped("count", err))
		}
	}
	return nil
}
