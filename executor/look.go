package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/executor/batch"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// look asks whether anything is due before a run is opened. It returns the leaves that need a shard; nil for all. If nothing is due the
// turn is over: that counts as a run, is remembered here, and is written to the catalog once in lookedInterval.
//
//	crash after it     nothing was opened, and the policy's next turn comes sooner than necessary
func (w *worker) look(ctx context.Context, t *turn) ([]uint32, turnEnd, error) {
	p, m := t.policy, t.memory
	m.quiet.share(false, w.now())
	if t.whole {
		if err := run.IgnoreMarks(ctx, w.session.Control, p); err != nil {
			return nil, turnGoesOn, err
		}
		m.quiet.forget()
	}
	if err := w.foresee(ctx, m); err != nil || p.Unfinished != nil {
		return nil, turnGoesOn, err
	}
	since, err := w.quarantinedSince(ctx, p)
	if err != nil {
		return nil, turnGoesOn, err
	}
	f, err := m.programs.looks()
	if err != nil {
		return nil, turnGoesOn, err
	}
	began := w.now()
	look, err := w.lookAt(ctx, t, f)
	if schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		w.log.Info("a look takes too long, and a run is opened without: see the index that `lapse plan` names", "policy", p.Name)
		return nil, turnGoesOn, nil
	}
	if err != nil {
		return nil, turnGoesOn, run.Refusal(p, err)
	}
	if len(look.Due) > 0 {
		return w.found(ctx, t, look.Due)
	}
	took := w.now().Sub(began)
	rest, err := w.forgive(ctx, p, since)
	if err == nil {
		err = w.foundNothing(ctx, took, took > longLook, rest, t)
	}
	if err != nil {
		return nil, turnGoesOn, err
	}
	m.quiet.share(took <= longLook, w.now())
	return nil, turnFinished, nil
}

// foresee compares the functions of look and batches in one reading, as far as they were not compared before.
func (w *worker) foresee(ctx context.Context, m *policyMemory) error {
	looks, err := m.programs.looks()
	if err != nil {
		return err
	}
	batches, err := m.programs.batches()
	if err != nil {
		return err
	}
	return batch.Foresee(ctx, w.session.Control, looks, batches)
}

// foundNothing records that looks found nothing due and what they left in quarantine, and, once in lookedInterval or if they were long, that
// they read the tables from their starts.
func (w *worker) foundNothing(ctx context.Context, took time.Duration, long bool, rest quarantined, turns ...*turn) error {
	var late, passed []*record.InForce
	var noted []*quiet
	now := w.now()
	for _, t := range turns {
		p, m := t.policy, t.memory
		w.metrics.backlog.nothingDue(p, now)
		w.log.Debug("nothing is due", "policy", p.Name, "version", p.Version)
		is := m.foundNothing(p.LookedAt, now)
		m.finish(p, &runState{}, rest)
		if is {
			late, noted = append(late, p), append(noted, &m.quiet)
		}
		if is || long {
			passed = append(passed, p)
		}
	}
	var err error
	if len(passed) > 0 {
		err = run.Passed(ctx, w.session.Control, took, passed...)
	}
	if err == nil && len(late) > 0 {
		err = run.Looked(ctx, w.session.Control, late...)
	}
	if err != nil {
		return err
	}
	for _, q := range noted {
		q.noted(now)
	}
	return nil
}

// found returns the leaves that have due rows, or none if a run could not do anything about them yet.
func (w *worker) found(ctx context.Context, t *turn, due []uint32) ([]uint32, turnEnd, error) {
	if t.whole {
		return due, turnGoesOn, nil
	}
	aside, err := w.allAside(ctx, t.policy, due)
	switch {
	case err != nil:
		return nil, turnGoesOn, err
	case aside:
		return nil, turnElsewhere, nil
	}
	return due, turnGoesOn, nil
}

// allAside reports whether the last run put all of these leaves aside and none may be tried yet. Another run would only repeat that, as
// often as the policy's schedule says. So the policy pauses until its next time, or until the first of them may be tried. What the last
// run left stays on record.
func (w *worker) allAside(ctx context.Context, p *record.InForce, due []uint32) (bool, error) {
	if p.LastRun == nil {
		return false, nil
	}
	var leaves int
	var first *time.Duration
	err := w.session.Control.QueryRow(ctx, `
		select count(*), min(a.retry_at) - clock_timestamp()
		  from (select s.leaf, min(s.retry_at) as retry_at
		          from lapse.shard s
		         where s.run = $1 and s.version = $2 and s.leaf = any ($3::oid[])
		         group by s.leaf
		        having bool_and(s.aside and not s.done and s.retry_at > clock_timestamp())) a`, p.LastRun.ID, p.Version, due).Scan(&leaves, &first)
	if err != nil {
		return false, fmt.Errorf("look for shards that are put aside: %w", err)
	}
	if leaves < len(due) || first == nil {
		return false, nil
	}
	until := w.now().Add(*first)
	if next, err := p.Schedule.Next(w.now(), p.Since); err == nil && next.Before(until) {
		until = next
	}
	w.memory(p).pauses.change(func(d *delay) { d.until = until })
	return true, nil
}

// lookAt runs a look, and runs it again if leaves had to be checked first. A leaf that changes in between stays one to try.
func (w *worker) lookAt(ctx context.Context, t *turn, f *batch.Program) (run.Look, error) {
	p, quiet := t.policy, &t.memory.quiet
	find := func() (run.Look, error) {
		look, err := w.session.FindDue(ctx, p, f, quiet.marks(w.now()))
		if err == nil {
			quiet.add(look.Quiet)
		}
		return look, err
	}
	look, err := find()
	if err == nil && (len(look.Unkept) > 0 || !look.Divided) {
		err = run.Acquaint(ctx, w.session.Control, p, &look)
	}
	if err == nil && len(look.Unkept) > 0 {
		look, err = find()
	}
	if errors.Is(err, batch.ErrNoFunction) {
		err = w.missing(ctx, p, err)
	}
	return look, err
}

// missing decides why a policy has no function for looks. If its version is being replaced, all its functions are gone. If only this one
// is, somebody dropped it, or another version of Lapse made the others.
func (w *worker) missing(ctx context.Context, p *record.InForce, gone error) error {
	var deletes bool
	err := w.session.Control.QueryRow(ctx, `select exists (select from pg_proc f where f.pronamespace = 'lapse'::regnamespace and f.proname = $1)`,
		strings.TrimPrefix(functions.DeleteFunction(p.ID, p.Version), "lapse.")).Scan(&deletes)
	switch {
	case err != nil:
		return fmt.Errorf("look for the functions of a policy: %w", err)
	case deletes:
		return &batch.TamperedError{Function: functions.DueFunction(p.ID, p.Version), What: "is not there"}
	}
	return gone
}

// longLook is the time from which a look has probably read dead rows: later looks then start after them.
const longLook = 50 * time.Millisecond
