package executor

import (
	"context"
	"time"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// Once a day, all rows due under each policy are counted for the report: see lapse.snapshot.
const (
	snapshotEvery = 24 * time.Hour
	snapshotTime  = 2 * time.Minute  // a longer count is canceled: its snapshot keeps vacuum from removing rows
	snapshotFirst = time.Minute      // after the start
	snapshotLook  = 10 * time.Minute // how often to check whether one is due: policies change, and another executor may stop
)

// keepSnapshots takes the snapshots that are due until ctx ends, one policy at a time, over a connection of its own. Nothing waits for it.
func (e *Executor) keepSnapshots(ctx context.Context) {
	for pause := snapshotFirst; wait(ctx, pause) == nil; pause = snapshotLook {
		e.CountDue(ctx)
	}
}

// CountDue counts what is due under each policy, for the report, unless that was done within a day. It skips what it cannot count.
func (e *Executor) CountDue(ctx context.Context) {
	if err := e.takeSnapshots(ctx); err != nil && ctx.Err() == nil {
		e.log.Debug("what is due is not counted", "error", stripped("count", err))
	}
}

// takeSnapshots takes the snapshots that are due. A policy that cannot be counted does not affect the others.
func (e *Executor) takeSnapshots(ctx context.Context) error {
	if e.guards.unaudited() {
		return nil // lapse.begin_snapshot would begin none
	}
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
			continue // nothing of another version is called
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
