package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/planner/functions"
	"lapse/schemas"
)

// looksOf builds what looks of a policy version run.
func looksOf(p *planner.InForce, roles schemas.Roles) (*program, error) {
	own, err := functions.Of(&p.Definition, roles)
	if err != nil {
		return nil, fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	shared, err := schemas.LookFunctions(roles)
	if err != nil {
		return nil, err
	}
	look := own[slices.IndexFunc(own, func(f schemas.Function) bool { return f.Name == functions.DueFunction(p.ID, p.Version) })]
	return newProgram([]schemas.Function{look}, shared, func(name, grantee string) bool {
		return grantee == roles.Owner || grantee == roles.Executor || grantee == look.Owner ||
			name != look.Name && strings.HasPrefix(grantee, roles.DeleterPrefix)
	}), nil
}

// look asks whether anything is due before a run is opened, and returns the leaves that need a shard; nil for all. The turn is over
// where nothing is due: that counts as a run, and is remembered, and written down once in lookedInterval.
//
//	crash behind it    nothing was opened, and the policy's next turn comes sooner than it had to
func (w *worker) look(ctx context.Context, t *turn) ([]uint32, turnEnd, error) {
	p, m := t.policy, t.memory
	quiet := m.quiet.marks(w.now())
	if t.whole {
		if err := p.IgnoreMarks(ctx, w.session.control); err != nil {
			return nil, turnGoesOn, err
		}
		quiet = nil
	}
	if p.Unfinished != nil {
		return nil, turnGoesOn, nil
	}
	since, err := w.restingSince(ctx, p)
	if err != nil {
		return nil, turnGoesOn, err
	}
	f, err := m.programs.looks()
	if err != nil {
		return nil, turnGoesOn, err
	}
	began := w.now()
	look, err := w.lookAt(ctx, p, f, quiet)
	if schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		w.log.Info("a look takes too long, and a run is opened without: see the index that `lapse plan` names", "policy", p.Name)
		return nil, turnGoesOn, nil
	}
	if err != nil {
		return nil, turnGoesOn, p.LookRefusal(err)
	}
	m.quiet.add(look.Quiet)
	if len(look.Due) > 0 {
		return w.found(ctx, t, look.Due)
	}
	w.metrics.backlog.nothingDue(p, w.now())
	w.log.Debug("nothing is due", "policy", p.Name, "version", p.Version)
	rest, err := w.forgive(ctx, p, since)
	if err != nil {
		return nil, turnGoesOn, err
	}
	now := w.now()
	late := m.foundNothing(p.LookedAt, now)
	m.finish(p, &runState{}, rest)
	if err := w.noteLook(ctx, p, late, now.Sub(began)); err != nil {
		return nil, turnGoesOn, err
	}
	return nil, turnFinished, nil
}

// found returns the leaves that have due rows, unless no run could do anything about them yet.
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

// allAside reports whether the last run put all of these leaves aside and none may be tried yet. Then a run could do nothing but say so again,
// as often as the policy's schedule comes; the policy pauses until the next time, or until the first of them may be tried. What the last run left
// stays on record.
func (w *worker) allAside(ctx context.Context, p *planner.InForce, due []uint32) (bool, error) {
	if p.LastRun == nil {
		return false, nil
	}
	var leaves int
	var first *time.Duration
	err := w.session.control.QueryRow(ctx, `
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

// noteLook records that a look found nothing due, and that it began at the table's start where it took long.
func (w *worker) noteLook(ctx context.Context, p *planner.InForce, late bool, took time.Duration) error {
	if late || took > longLook {
		if err := p.Passed(ctx, w.session.control, took); err != nil {
			return err
		}
	}
	if !late {
		return nil
	}
	return p.Looked(ctx, w.session.control)
}

// lookAt looks, and once more where what is known of the table had to be taken down first.
func (w *worker) lookAt(ctx context.Context, p *planner.InForce, f *program, quiet []int64) (planner.Look, error) {
	look, err := w.session.look(ctx, p, f, quiet)
	if err == nil && (len(look.Unkept) > 0 || !look.Divided) {
		again := look.Unchecked()
		if err = p.Acquaint(ctx, w.session.control, &look); err == nil && again {
			look, err = w.session.look(ctx, p, f, quiet)
		}
	}
	if errors.Is(err, errNoFunction) {
		err = w.missing(ctx, p, err)
	}
	return look, err
}

// missing tells a policy of which the version is being replaced, so that all its functions are gone, from one that has no function for
// looks: somebody dropped it, or another version of Lapse made the others.
func (w *worker) missing(ctx context.Context, p *planner.InForce, gone error) error {
	var deletes bool
	err := w.session.control.QueryRow(ctx, `select exists (select from pg_proc f where f.pronamespace = 'lapse'::regnamespace and f.proname = $1)`,
		strings.TrimPrefix(functions.DeleteFunction(p.ID, p.Version), "lapse.")).Scan(&deletes)
	switch {
	case err != nil:
		return fmt.Errorf("look for the functions of a policy: %w", err)
	case deletes:
		return &tamperedError{functions.DueFunction(p.ID, p.Version), "is not there"}
	}
	return gone
}

// longLook is how long a look takes that may have waded through dead rows: then the next ones begin behind them.
const longLook = 50 * time.Millisecond

// look runs a policy's look in one round trip, in a clean session and a transaction that may not write. The functions that it runs are
// held against what they must be in the same statement, and nothing of them runs if they differ.
func (s *session) look(ctx context.Context, p *planner.InForce, f *program, quiet []int64) (planner.Look, error) {
	for range 2 {
		look, same, err := s.tryLook(ctx, p, f, quiet)
		if err != nil || same {
			return look, err
		}
		if err := s.compareLook(ctx, f); err != nil {
			return look, err
		}
	}
	return planner.Look{}, errFunctionsChanged
}

// beginLook queues what makes the session clean, and the beginning of a look's transaction.
func beginLook(batch *pgx.Batch) (statements int) {
	for _, statement := range []string{"reset all", "deallocate all", "discard temp", "begin isolation level read committed read only"} {
		batch.Queue(statement)
	}
	return batch.Len()
}

func (s *session) tryLook(ctx context.Context, p *planner.InForce, f *program, quiet []int64) (look planner.Look, same bool, err error) {
	batch := &pgx.Batch{}
	before := beginLook(batch)
	batch.Queue(planner.LookStatement(p.ID, p.Version, strings.ReplaceAll(functionVersions, "$1", "$3"), "$4::bigint[]"), nil, f.version(), f.names, quiet)
	batch.Queue("rollback")
	answers := s.batches.SendBatch(ctx, batch)
	for range before {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	if err == nil {
		var rows pgx.Rows
		if rows, err = answers.Query(); err == nil {
			look, same, err = planner.ReadLook(rows)
		}
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err == nil {
		return look, same, nil
	}
	s.rollback(ctx)
	if schemas.StateOf(err) == schemas.SQLStateUndefinedFunction {
		return look, false, nil // compareLook says what is missing
	}
	return look, false, fmt.Errorf("look for due rows: %w", err)
}

// compareLook holds the functions of a look against what they must be.
func (s *session) compareLook(ctx context.Context, f *program) error {
	defer s.rollback(ctx)
	batch := &pgx.Batch{}
	before := beginLook(batch)
	batch.Queue(functionVersions, f.names)
	answers := s.batches.SendBatch(ctx, batch)
	var err error
	for range before {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	versions := ""
	if err == nil {
		err = answers.QueryRow().Scan(&versions)
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("read the functions of a look: %w", err)
	}
	return f.compare(ctx, s.batches, versions)
}
