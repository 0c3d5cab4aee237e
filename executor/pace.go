package executor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/backoff"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// An application feels deletion through how often its transactions meet a batch: if one transaction in a hundred does, its 99th percentile
// changes. So at gentle pace most of the time belongs to the application, if there is one. The constants come from bench/pace.
const (
	// gentleShare is the share of the time in which batches at gentle pace may run; quietShare is that share while no other session is
	// active.
	gentleShare = survey.GentleShare
	quietShare  = survey.QuietShare
	// remembered is how long the server counts as busy after a check found another session at work. Checks are short, and an application
	// may be idle for most of the time between its statements.
	remembered = 10 * factsInterval
	// gentleLane is how long a batch at gentle pace waits for another one of this process to end. After that they run side by side.
	gentleLane = 10 * time.Millisecond
	// longestGentlePause is the longest pause after a batch at gentle pace, so that expired rows are deleted even on a server that is
	// overloaded for days.
	longestGentlePause = time.Second
)

// throttlePace is the reason of the pauses at gentle pace: a label of throttle_seconds_total.
const throttlePace = "pace"

// pace decides when batches at gentle pace may begin, for all workers of a process. It promises:
//
//   - Together they run for at most gentleShare of the time, or quietShare: after a batch each worker pauses until its part of the share
//     is kept. The share is split evenly among all workers, of all executors on this database, that have a shard of such a policy. Once in
//     factsInterval pace counts the workers of other processes, and checks whether other sessions are active in any database.
//   - Two batches of one process do not run side by side, unless one lasts longer than gentleLane. Batches of two processes may.
//
// It ignores policies at another pace. Safe for concurrent use.
type pace struct {
	sleep func(context.Context, time.Duration) error
	ask   func(context.Context, *pgx.Conn) (workers int, others bool, err error) // askCompany; tests replace it
	lane  chan struct{}                                                          // holds one

	mu      sync.Mutex
	here    int // workers of this process with a shard of a policy at gentle pace
	all     int // of all processes, when last counted
	askedAt time.Time
	seen    time.Time // when a check last found another session active
	busy    bool      // a recent check did
}

func newPace() *pace {
	return &pace{sleep: backoff.Sleep, ask: askCompany, lane: make(chan struct{}, 1)}
}

// join counts a worker until the returned function is called.
func (c *pace) join() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.here--
	}
}

// share returns one worker's part of the time.
func (c *pace) share() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := float64(quietShare)
	if c.busy {
		share = gentleShare
	}
	return share / float64(max(c.here, c.all, 1))
}

// due reports whether it is time to count workers in the database, and records that the caller does.
func (c *pace) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := now.Sub(c.askedAt); since >= 0 && since < factsInterval {
		return false
	}
	c.askedAt = now
	return true
}

// counted records the number of workers, and whether other sessions are active.
func (c *pace) counted(workers int, others bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = workers
	if others {
		c.seen = now
	}
	since := now.Sub(c.seen)
	c.busy = since >= 0 && since < remembered
}

// enter returns when no other batch of this process runs, or when that batch takes long. The caller calls the returned function at the
// end of its own batch.
func (c *pace) enter(ctx context.Context) (leave func()) {
	timer := time.NewTimer(gentleLane)
	defer timer.Stop()
	select {
	case c.lane <- struct{}{}:
		return func() { <-c.lane }
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

// company counts the workers that have a shard of a policy at gentle pace, and checks whether any other session runs a statement or ran
// one in the last 20 ms. A login without pg_read_all_stats sees only sessions that hold a snapshot, as a session does while it reads or
// changes rows: if an application keeps the server busy, about every second check sees one.
const company = `
	select (select count(*)
	          from lapse.shard s join lapse.policy p on p.id = s.policy_id and p.version = s.version
	         where not s.done and s.holder is not null and s.lease_until > clock_timestamp()
	           and p.spec ->> 'pace' is distinct from '` + policyfile.PaceUnlimited + `'),
	       exists (
	        select from pg_stat_get_activity(null) a
	         where a.datid <> 0 and coalesce(a.backend_type, 'client backend') = 'client backend' and a.application_name not like 'lapse%'
	           and case when a.state is null or a.state = 'disabled' then a.backend_xmin is not null
	                    else a.state = 'active' or a.state_change > clock_timestamp() - interval '20 ms' end)`

// askCompany runs the query company.
func askCompany(ctx context.Context, conn *pgx.Conn) (workers int, others bool, err error) {
	if err := conn.QueryRow(ctx, company).Scan(&workers, &others); err != nil {
		return 0, false, fmt.Errorf("count the workers at gentle pace: %w", err)
	}
	return workers, others, nil
}

// countCompany counts the workers that share the time, and checks for other active sessions, unless that was done lately.
func (w *worker) countCompany(ctx context.Context) error {
	if !w.pace.due(w.now()) {
		return nil
	}
	workers, others, err := w.pace.ask(ctx, w.session.Control)
	if err == nil {
		w.pace.counted(workers, others, w.now())
	}
	return err
}

// waitAfterBatch waits out the pause that follows this worker's last gentle batch. It ends early with ctx; the caller checks ctx.
func (w *worker) waitAfterBatch(ctx, work context.Context, p *record.InForce) error {
	if !gentle(p) {
		return nil
	}
	if err := w.countCompany(work); err != nil {
		return err
	}
	length := min(w.pausedUntil.Sub(w.now()), longestGentlePause)
	w.pausedUntil = time.Time{}
	if length > 0 {
		_ = w.pace.sleep(ctx, length)
		w.metrics.throttled.WithLabelValues(string(p.Name), p.TableName, throttlePace).Add(length.Seconds())
	}
	return nil
}

// gently begins a batch at gentle pace. The returned function ends it, and sets the pause that follows.
func (w *worker) gently(ctx context.Context, m *policyMemory) (end func()) {
	leave := w.pace.enter(ctx)
	began := w.now()
	return func() {
		ended := w.now()
		leave()
		share := w.pace.share()
		w.pausedUntil = ended.Add(time.Duration(float64(ended.Sub(began)) * (1/share - 1)))
		m.pauses.change(func(d *delay) { d.share = share })
	}
}
