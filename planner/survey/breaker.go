package survey

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// The breaker keeps a run from beginning until a person accepts it. Before a run, what is due is counted, no further than necessary, and judged for
// three causes:
//
//	max_fraction   more of the table is due than the policy's max_fraction
//	sudden_jump    for a policy without max_fraction: far more is due than its last runs make one expect
//	absurd_past    most of what is due expired before such tables existed: a program wrote 0 or nothing as a time
//
// A table with little due never trips it for the last two.

const (
	// jumpFloor is how many due rows are never a jump; jumpFactor is the multiple of the expected number that is one; jumpFraction is the
	// share of the table below which nothing is a jump, because it does little harm.
	jumpFloor    = 10_000
	jumpFactor   = 10
	jumpFraction = 0.1
	// pastFloor is how many rows from the absurd past are harmless; pastShare is the share of the due rows that they may be.
	pastFloor = 1_000
	pastShare = 0.5
	// lastRuns is how many runs the expected number is computed from.
	lastRuns = 20
)

// judgeTimeout bounds one count for Judge. It is shorter than an executor waits for an answer.
const judgeTimeout = "15s"

// judgeLockTimeout is how long Judge waits for a lock. Meanwhile it holds ACCESS SHARE on partitions that it locked before. It is far shorter than
// PostgreSQL's deadlock_timeout.
const judgeLockTimeout = "100ms"

// Judgement is the result of Judge.
type Judgement struct {
	record.Trip
	Trips bool
	DueIs Count // how exact Due is: Judge counts no further than necessary

	counted *found // nil: nothing was counted
}

// tableRowsSQL is PostgreSQL's own estimate: rows per page, from the last ANALYZE or VACUUM, times the number of pages. pg_relation_size
// locks what it measures, so the query applies it to the leaves before it joins anything to them: applied to pg_class it would lock, and
// wait for, every table of the database.
const tableRowsSQL = `
	select case when bool_and(size = 0 or c.reltuples >= 0 and c.relpages > 0)
	            then coalesce(sum(case when size > 0 then c.reltuples::float8 / nullif(c.relpages, 0) * (size / current_setting('block_size')::int) end), 0)::bigint
	            else -1 end
	  from (select x.relation, pg_relation_size(x.relation) as size from lapse.leaves($1) x offset 0) l
	  join pg_class c on c.oid = l.relation`

// Judge judges what is due under a policy. The policy's survey function runs in conn, a session whose state does not matter; everything else is read
// over q, another session. It changes nothing. It does not wait for a lock on the table or on a partition, and yields to a session that waits to
// change the table: see ErrAwaited.
func Judge(ctx context.Context, conn *pgx.Conn, q database.DB, p *record.InForce, now time.Time) (j Judgement, err error) {
	j.At = now
	if j.Rows, err = estimatedRows(ctx, q, p); err != nil {
		return j, err
	}
	expected, err := expected(ctx, q, p, now)
	if err != nil {
		return j, err
	}
	c := counting{conn: conn, over: q, policy: p, now: now}
	return j, c.bounded(ctx, func() error { return c.judge(ctx, &j, expected) })
}

// TableRows is how many rows the policy's table has, for a limit that is a share of it: PostgreSQL's own estimate or, if the table was
// never analyzed, the rows that will ever be due under the policy and are not held, counted up to countedRows. It uses the sessions as
// Judge does, and waits as little.
func TableRows(ctx context.Context, conn *pgx.Conn, q database.DB, p *record.InForce, now time.Time) (rows int64, err error) {
	if rows, err = estimatedRows(ctx, q, p); err != nil || rows >= 0 {
		return rows, err
	}
	c := counting{conn: conn, over: q, policy: p, now: now}
	err = c.bounded(ctx, func() error {
		rows, err = ever(now, countedRows, c.counts(ctx))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s, for max_rows_per_run: %w", p.TableName, err)
	}
	return rows, nil
}

// countedRows is how far a table that was never analyzed is counted, for a limit that is a share of it: a percentage of so many rows is a
// large enough limit until the table is analyzed.
const countedRows = 1_000_000

// estimatedRows is PostgreSQL's own estimate, below 0 if the table was never analyzed.
func estimatedRows(ctx context.Context, q database.DB, p *record.InForce) (rows int64, err error) {
	err = database.Pinned(ctx, q, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, judgeLockTimeout); err != nil {
			return err
		}
		return tx.QueryRow(ctx, tableRowsSQL, p.TableOID).Scan(&rows)
	})
	if err != nil {
		return 0, fmt.Errorf("read how many rows %s has: %w", p.TableName, err)
	}
	return rows, nil
}

// nothingExpected means that no run shows what to expect.
const nothingExpected = -1

// expected is how many rows are expected, by the last runs since a person armed the policy: as many as the largest of them deleted, or the number per
// run times the number of runs that were due since the last. If a new version cut the last one short, all that was due then counts. It is
// nothingExpected if there was no run, or if the last one left rows at its limit, or was cut short and had counted nothing: the person who armed the
// policy accepted what was due then. A version that comes into force without a person does not count.
func expected(ctx context.Context, q database.Querier, p *record.InForce, now time.Time) (int64, error) {
	if p.LastRun == nil || p.LastRun.StartedAt.Before(p.ArmedAt) {
		return nothingExpected, nil
	}
	var cut *uuid.UUID
	if p.CutShort {
		cut = &p.LastRun.ID
	}
	var runs, most, sum int64
	var first, last *time.Time
	var limited bool
	err := q.QueryRow(ctx, `
		select count(*), coalesce(max(x.deleted), 0), coalesce(sum(x.deleted), 0)::bigint, min(x.started_at), max(x.started_at),
		       coalesce((select coalesce(r.ended_by = 'max_rows_per_run', false) or r.run = $4 and r.due is null
		                   from lapse.run r where r.policy_id = $1 order by r.number desc limit 1), false)
		  from (select r.started_at,
		               case when r.run = $4 then r.due
		                    else r.deleted + coalesce((select sum(s.deleted) from lapse.shard s where s.run = r.run)::bigint, 0) end as deleted
		          from lapse.run r
		         where r.policy_id = $1 and r.started_at >= $2
		         order by r.number desc
		         limit $3) x
		 where x.deleted > 0`, int32(p.ID), p.ArmedAt, lastRuns, cut).Scan(&runs, &most, &sum, &first, &last, &limited)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read what the last runs of policy %s deleted: %w", p.Name, err)
	case limited || most == 0:
		return nothingExpected, nil
	}
	apart := last.Sub(*first) / time.Duration(max(runs-1, 1))
	was := p.Current()
	if p.LastRun.Version != p.Version { // those runs were as far apart as their version says
		was = &record.Version{}
		if err := q.QueryRow(ctx, `select `+record.VersionSQL+` from lapse.policy p where p.id = $1 and p.version = $2`, p.ID, p.LastRun.Version).Scan(was); err != nil {
			return 0, fmt.Errorf("read the version of the last run of policy %s: %w", p.Name, err)
		}
	}
	if next, err := was.Spec.Schedule(p.Name).Next(*last, p.Since); err == nil {
		apart = max(apart, next.Sub(*last))
	}
	missed := float64(now.Sub(*last)) / float64(max(apart, time.Second))
	return max(most, int64(float64(sum)/float64(runs)*missed)), nil
}

// counting does the counts of one judgement.
type counting struct {
	conn   *pgx.Conn
	over   database.Querier // another session
	policy *record.InForce
	now    time.Time
}

// bounded runs a count in a clean session, with a time limit, and cleans the session afterwards.
func (c *counting) bounded(ctx context.Context, count func() error) error {
	if err := cleanSession(ctx, c.conn); err != nil {
		return err
	}
	err := setBounds(ctx, c.conn, judgeTimeout)
	if err == nil {
		err = count()
	}
	if cleaned := cleanSession(ctx, c.conn); err == nil {
		err = cleaned
	}
	return err
}

// judge counts no further than the causes require.
func (c *counting) judge(ctx context.Context, j *Judgement, expected int64) error {
	p := c.policy
	if p.Limits.MaxFraction > 0 {
		due, err := c.count(ctx, c.now, extent{through: new(int64)})
		if err != nil {
			return fmt.Errorf("count what is due, for max_fraction: %w", err)
		}
		j.Due, j.DueIs, j.counted = due.Due, due.DueIs, due
		if err := c.countRows(ctx, j); err != nil {
			return fmt.Errorf("count the rows of %s, for max_fraction: %w", p.TableName, err)
		}
		if j.Trips = p.Limits.MaxFraction < 1 && j.Due > 0 && float64(j.Due) > p.Limits.MaxFraction*float64(j.Rows); j.Trips {
			j.Cause = record.TooMuchDue
			return nil
		}
		return c.past(ctx, j, due)
	}
	most := int64(jumpFloor)
	if expected != nothingExpected {
		most = max(most, jumpFactor*expected, int64(jumpFraction*float64(j.Rows)))
	}
	due, err := c.due(ctx, c.now, most)
	if err != nil {
		return err
	}
	j.Due, j.DueIs, j.counted = due.Due, due.DueIs, due
	if expected == nothingExpected || due.DueIs != MoreThan && due.Due <= most {
		return c.past(ctx, j, due)
	}
	j.Trips, j.Cause, j.Compared = true, record.SuddenJump, most
	all, err := c.due(ctx, c.now, math.MaxInt64-1) // only to report a number
	if err == nil {
		j.Due = max(all.Due, most+1)
	}
	return err
}

// countRows counts the rows of a table that was never analyzed, no further than necessary: those that will ever be due under the policy and are not
// held. The table has at least as many, so the breaker may ask too soon, but never too late.
func (c *counting) countRows(ctx context.Context, j *Judgement) error {
	fraction := c.policy.Limits.MaxFraction
	if j.Rows >= 0 || j.Due == 0 || fraction >= 1 {
		return nil
	}
	rows, err := ever(c.now, int64(math.Ceil(float64(j.Due)/fraction)), c.counts(ctx))
	if err == nil {
		j.Rows = rows
	}
	return err
}

// ever counts what will ever be due under the policy and is not held, up to enough.
func ever(now time.Time, enough int64, call countAt) (int64, error) {
	rows, err := call(now.AddDate(1000, 0, 0), upTo(enough-1))
	if err != nil {
		return 0, err
	}
	if rows.DueIs == Exact {
		return rows.Due, nil
	}
	return enough, nil
}

// past checks how many of the due rows are from the absurd past.
func (c *counting) past(ctx context.Context, j *Judgement, due *found) error {
	old, err := pastDue(c.policy.Definition.Expire, c.now, due, func(at time.Time, most int64) (*found, error) { return c.due(ctx, at, most) })
	if old > 0 {
		j.Trips, j.Cause, j.Compared = true, record.AbsurdPast, old
	}
	return err
}

// pastDue is how many of the due rows of an expiry are from the absurd past, if those are too many; otherwise 0. count counts what is due at an
// instant, up to most.
func pastDue(kind expiry.Kind, now time.Time, due *found, count func(at time.Time, most int64) (*found, error)) (int64, error) {
	before := record.Absurd
	if least, ok := expiry.LeastOf(kind); ok {
		before = before.AddDate(0, int(least.Months), int(least.Days)).Add(time.Duration(least.Microseconds) * time.Microsecond)
	}
	switch {
	case due.DueIs == Exact && due.Due <= pastFloor, due.Oldest != nil && due.Oldest.After(record.Absurd):
		return 0, nil // too few, or none
	case now.Sub(before) < 365*24*time.Hour:
		return 0, nil // rows are kept for so long that they may really be that old
	}
	old, err := count(before, max(pastFloor, int64(pastShare*float64(due.Due))))
	if err != nil {
		return 0, err
	}
	if old.DueIs == MoreThan || old.Due > pastFloor && float64(old.Due) > pastShare*float64(due.Due) {
		return old.Due, nil
	}
	return 0, nil
}

// counts is count as the survey asks.
func (c *counting) counts(ctx context.Context) countAt {
	return func(at time.Time, to extent) (*found, error) { return c.count(ctx, at, to) }
}

// count calls the policy's survey function, and yields.
func (c *counting) count(ctx context.Context, at time.Time, to extent) (f *found, err error) {
	err = database.GivingWay(ctx, c.conn, c.over, func() (err error) {
		f, err = callSurvey(ctx, c.conn, functions.SurveyFunction(c.policy.ID, c.policy.Version), at, to)
		return err
	})
	return f, err
}

// due counts what is due at an instant, up to most. If that takes too long, or blocks another session, it returns an estimate.
func (c *counting) due(ctx context.Context, at time.Time, most int64) (*found, error) {
	f, err := c.count(ctx, at, upTo(most))
	if schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		f, err = c.count(ctx, at, upTo(0))
	}
	return f, err
}
