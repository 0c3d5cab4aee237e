package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/schemas"
)

// search finds a row that resists, on one shard. The batches of a shard are cut off in one order, so that a batch of n rows
// which fails says that the row is among the next n: they are halved until it alone is left, and it is tried once more by a batch that
// steps over it. After that batches begin small and double, so that finding the next one takes the logarithm of the rows
// between the two, and twice that at most. What is remembered decides about speed alone: another process begins anew.
//
//	a batch of n rows fails        the next has n/2 rows
//	one of k of them went through  the next has half of those that are left
//	one is left                    a batch of one row steps over it: the row goes, or is entered in the quarantine
//	stepped over                   1 row, stepping over it too; then 2, 4, 8 ... until batches are as large as they were
type search struct {
	among int // so many rows from the cursor on have one that resists; 0: nobody knows
	step  int // where nobody knows: the rows of the next batch
}

// next is what the next batch is to do.
func (s *search) next(o order) order {
	rows := s.step
	if s.among > 0 {
		rows = max(s.among/2, 1)
	}
	o.limit = min(o.limit, rows)
	if o.stepOver = s.among == 1 || s.among == 0 && rows == 1; o.stepOver {
		o.shape = planner.PicksInstead(o.shape) // the row is to be locked
	}
	return o
}

// failed takes down that a batch of so many rows did not get through because of one of them.
func (s *search) failed(rows int) { s.among = rows }

// through takes down that a batch was durable.
func (s *search) through(o order, picked int64, deleted bool) {
	switch left := s.among - int(picked); {
	case o.stepOver && deleted, s.among > 0 && left <= 0:
		s.among, s.step = 0, 2 // it went, or it went by
	case o.stepOver:
		s.among, s.step = 0, 1
	case s.among > 0:
		s.among = left
	default:
		s.step = 2 * o.limit
	}
}

// order is what the next batch on a shard, which is a whole leaf or a slice of one, is to do: at most limit rows.
func (m *policyMemory) order(l *lease, p *planner.InForce, limit int) order {
	m.mu.Lock()
	defer m.mu.Unlock()
	usual := p.Definition.Shapes()[0]
	if m.heaps[l.leaf] && usual == planner.ShapeRange {
		usual = planner.ShapeHeap
	}
	o := order{limit: limit, shape: m.shapes.next(l.shard, usual)}
	s := m.searches[l.shard]
	if s == nil {
		return o
	}
	if s.among == 0 && s.step >= limit && limit > 1 {
		delete(m.searches, l.shard)
		return o
	}
	return s.next(o)
}

// searching reports whether a row that resists is looked for on a shard, and begins with it after a failure of so many rows; 0 for none.
func (m *policyMemory) searching(shard int64, failed int) (before bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.searches[shard]
	if before = s != nil; !before && failed > 0 {
		s = &search{}
		m.searches[shard] = s
	}
	if failed > 0 {
		s.failed(failed)
	}
	return before
}

// stepped takes down what a batch did on a shard where a row is looked for, and reports whether there is one. Its size and time
// say nothing of those of others.
func (m *policyMemory) stepped(shard int64, o order, done *result) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.searches[shard]
	if s == nil {
		return false
	}
	s.through(o, done.picked, done.deleted > 0)
	if done.finished {
		delete(m.searches, shard)
	}
	return true
}

// narrow makes the next batch on the shard look for the row because of which this one failed.
func (w *worker) narrow(t *turn, a *assignment, o order, err error) {
	if before := t.memory.searching(a.shard, o.limit); before {
		return
	}
	w.log.Info("a row resists; it is looked for", "policy", t.policy.Name, "relation", a.leaf, "rows", o.limit, "error", stripped("delete a batch", err))
}

// entered says, once for each cause in a run, that a row was entered in the quarantine. The row itself is named by `lapse quarantine list` alone.
func (w *worker) entered(ctx context.Context, t *turn, a *assignment, begun *start) {
	cause := &ServerError{}
	var query string
	err := w.session.control.QueryRow(ctx, `
		select q.sqlstate, coalesce(q.relation, ''), coalesce(q.constraint_name, '')
		  from lapse.quarantine q
		 where q.policy_id = $1 and q.leaf = $2 and q.tried_at >= $3
		 order by q.tried_at desc
		 limit 1`, a.policy, a.leaf, begun.at).Scan(&cause.SQLState, &cause.Table, &cause.Constraint)
	if errors.Is(err, pgx.ErrNoRows) {
		return // a trigger kept it, without an error
	}
	if err == nil && cause.Constraint != "" {
		query, err = planner.Referring(ctx, w.session.control, t.policy, cause.Table, cause.Constraint)
	}
	if err != nil {
		w.log.Warn("a row was entered in the quarantine; why is not known", "policy", a.name, "error", stripped("look into the quarantine", err))
		return
	}
	if !t.memory.entered(cause) {
		return
	}
	facts := []any{"policy", a.name, "relation", a.leaf, "error", error(cause), "see", fmt.Sprintf("lapse quarantine list %s", a.name)}
	if query != "" {
		facts = append(facts, "finds_referring_rows", query)
	}
	w.log.Warn("a row could not be deleted, and is in quarantine; others of this run with the same cause are not logged", facts...)
}

// entered reports whether this is the first row of the run with its cause.
func (m *policyMemory) entered(cause *ServerError) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.causes[*cause] {
		return false
	}
	m.causes[*cause] = true
	return true
}

// quarantined is what a policy has in quarantine.
type quarantined struct {
	rows  int64
	cause *ServerError // of most of them; nil for no rows
}

// quarantined asks for it.
func (s *session) quarantined(ctx context.Context, policy schemas.PolicyID) (r quarantined, err error) {
	cause := &ServerError{}
	err = s.control.QueryRow(ctx, `
		select sum(count(*)) over ()::bigint, q.sqlstate, coalesce(q.relation, ''), coalesce(q.constraint_name, '')
		  from lapse.quarantine q
		 where q.policy_id = $1
		 group by 2, 3, 4
		 order by count(*) desc
		 limit 1`, policy).Scan(&r.rows, &cause.SQLState, &cause.Table, &cause.Constraint)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("count the rows in quarantine: %w", err)
	}
	r.cause = cause
	return r, nil
}

// restingSince returns the server's time where a policy has rows in quarantine: the table is about to be looked through for due ones. Zero
// where it has none.
func (w *worker) restingSince(ctx context.Context, p *planner.InForce) (since time.Time, err error) {
	if p.Quarantine.Rows == 0 {
		return since, nil
	}
	if err := w.session.control.QueryRow(ctx, `select clock_timestamp()`).Scan(&since); err != nil {
		return since, fmt.Errorf("ask for the server's time: %w", err)
	}
	return since, nil
}

// forgive takes rows out of the quarantine that could have been tried since an instant and were not, all of the table having been looked
// through since then: they are gone or not due any more. Nothing is forgiven since the zero instant. It returns what is left.
//
//	crash before it    they are forgiven when the table is looked through again
func (w *worker) forgive(ctx context.Context, p *planner.InForce, since time.Time) (quarantined, error) {
	if !since.IsZero() {
		if _, err := w.session.control.Exec(ctx, `select lapse.forgive($1, $2)`, p.ID, since); err != nil {
			return quarantined{}, fmt.Errorf("forgive the rows in quarantine that are gone: %w", err)
		}
	}
	if since.IsZero() && p.Quarantine.Rows == 0 {
		return quarantined{}, nil
	}
	return w.session.quarantined(ctx, p.ID)
}

// rests is what a run leaves in quarantine. Where somebody had rows locked, or a shard was put aside, not all of the table was looked through.
func (w *worker) rests(ctx context.Context, t *turn, left *runState) (quarantined, error) {
	r, err := w.session.quarantined(ctx, t.policy.ID)
	if err != nil || r.rows == 0 || left.behind || left.aside > 0 {
		return r, err
	}
	return w.forgive(ctx, t.policy, t.begun().StartedAt)
}
