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

// What the application feels of a deletion is how often it meets a batch at all: if one of its transactions in a hundred does, its 99th
// percentile is another. So most of the time is left to it where there is one. See bench/pace, which the constants are from.
const (
	// gentleShare is the part of the time in which batches run at gentle pace, and quietShare that part while nobody else has the server
	// do anything.
	gentleShare = survey.GentleShare
	quietShare  = survey.QuietShare
	// remembered is for how long the server counts as busy after a look found somebody else at work: looks are short, and most of an
	// application's time may lie between its statements.
	remembered = 10 * factsInterval
	// gentleLane is how long a batch at gentle pace waits for the end of another one of this process. One that lasts longer
	// holds up nobody.
	gentleLane = 10 * time.Millisecond
	// longestGentlePause is the longest pause after a batch at gentle pace: on a server that is overloaded for days, expired rows go all
	// the same.
	longestGentlePause = time.Second
)

// throttlePace is the reason of the pauses at gentle pace: a label of throttle_seconds_total.
const throttlePace = "pace"

// pace is when batches at gentle pace may begin, for all workers of a process. What it promises of them:
//
//   - Together they run gentleShare of the time at most, or quietShare: each worker pauses after a batch for as long as it takes until
//     its part of the share is kept. Its part is one of as many as there are workers with a shard of such a policy, in all executors
//     that work on this database; those of other processes are counted once in factsInterval, and whether others have the server do
//     anything, in whatever database, is checked then too.
//   - Two batches of one process do not run side by side, unless one lasts longer than gentleLane. Batches of two processes may.
//
// Policies at another pace are not counted, and not kept. Safe for concurrent use.
type pace struct {
	sleep func(context.Context, time.Duration) error
	ask   func(context.Context, *pgx.Conn) (workers int, others bool, err error) // askCompany: tests say what it finds
	lane  chan struct{}                                                          // holds one

	mu      sync.Mutex
	here    int // workers of this process with a shard of a policy at gentle pace
	all     int // of all processes, as the database had them when it was asked last
	askedAt time.Time
	seen    time.Time // when a look last found somebody else at work
	busy    bool      // one did of late
}

func newPace() *pace {
	return &pace{sleep: backoff.Sleep, ask: askCompany, lane: make(chan struct{}, 1)}
}

// join counts a worker until it calls what is returned.
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

// share is one worker's part of the time.
func (c *pace) share() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := float64(quietShare)
	if c.busy {
		share = gentleShare
	}
	return share / float64(max(c.here, c.all, 1))
}

// due reports whether the database is to be asked how many workers there are, and records that it is.
func (c *pace) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := now.Sub(c.askedAt); since >= 0 && since < factsInterval {
		return false
	}
	c.askedAt = now
	return true
}

// counted records what was found: how many workers there are, and whether somebody else has the server do anything.
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

// enter lets a batch begin when no other of this process runs, or when one lasts long. The caller calls what is returned at the
// batch's end.
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

// company counts the workers that have a shard of a policy at gentle pace, and says whether anybody else's session has a statement under
// way or had one in the last 20 ms. Who is not shown what others' sessions do (pg_read_all_stats) sees those that hold a snapshot, as a
// session does while it reads or changes rows: of an application that has the server do much, every second look or so sees one.
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

// askCompany asks the database.
func askCompany(ctx context.Context, conn *pgx.Conn) (workers int, others bool, err error) {
	if err := conn.QueryRow(ctx, company).Scan(&workers, &others); err != nil {
		return 0, false, fmt.Errorf("count the workers at gentle pace: %w", err)
	}
	return workers, others, nil
}

// countCompany asks how many workers share the time, and whether others are at work, where it was not asked lately.
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

// waitAfterBatch waits out the pause that follows this worker's last gentle batch. It ends early with ctx, which the caller asks.
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

// gently begins a batch at gentle pace. What it returns ends it, and sets the pause that follows.
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
