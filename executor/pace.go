package executor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/backoff"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// An application feels deletion through how often its transactions meet a batch's portion: if one transaction in a hundred does, its 99th
// percentile changes. So at gentle pace most of the time belongs to the application, if there is one. The constants come from bench/pace.
const (
	// gentleShare is the share of the time in which batches at gentle pace may work, without their pauses; quietShare is that share while no other session is
	// active.
	gentleShare = survey.GentleShare
	quietShare  = survey.QuietShare
	// remembered is how long the server counts as busy after a look found another session at work. Looks are short, and an application
	// may be idle for most of the time between its statements.
	remembered = 10 * time.Second
	// lookShare bounds the looks' part of the time: one in lookShare. What a look costs grows with the server's connections.
	lookShare = 20
	// gentleLane is how long a batch that shares the time waits for another one of this process to end. After that they run side by side.
	gentleLane = 10 * time.Millisecond
	// longestGentlePause is the longest pause after a batch at gentle pace, so that expired rows are deleted even on a server that is overloaded for days.
	longestGentlePause = time.Second
	// longestSharePause is the same for a policy that names its share of the time: people who ask for one in a thousand mean it.
	longestSharePause = 10 * time.Second
)

// throttlePace is the reason of the pauses that pace makes: a label of throttle_seconds_total.
const throttlePace = "pace"

// pace decides when batches that share the time may begin, for all workers of a process. It promises:
//
//   - All policies at gentle pace together work for at most gentleShare of the time, or quietShare; a policy whose pace is a share of the
//     time runs for that share. After a batch each worker pauses until its part is kept, or for longestGentlePause or longestSharePause. A share is split evenly among all workers, of
//     all executors on this database, that have a shard of its policies. Once in factsInterval pace counts the workers of other
//     processes. After each gentle batch it looks whether other sessions are active in any database, unless looks take too long.
//   - Two batches of one portion do not run side by side in one process, unless one lasts longer than gentleLane. Others may.
//
// It ignores policies at unlimited pace. Safe for concurrent use.
type pace struct {
	sleep func(context.Context, time.Duration) error
	count func(context.Context, *pgx.Conn) (map[budget]int, error) // countWorkers and seeOthers; tests replace them
	look  func(context.Context, *pgx.Conn) (bool, error)
	lane  chan struct{} // holds one

	mu        sync.Mutex
	here      map[budget]int // workers of this process with a shard
	all       map[budget]int // of all processes, when last counted
	countedAt time.Time
	looking   bool          // a worker looks
	lookedAt  time.Time     // when the last look ended
	lookTook  time.Duration // how long it took
	seen      time.Time     // when a look last found another session active
	busy      bool          // a recent look did
}

// budget is what a share of the time is kept for: a policy whose pace is a share, or allGentle.
type budget = schemas.PolicyID

const allGentle budget = 0

func budgetOf(p *record.InForce) budget {
	if p.Limits.PaceShare() > 0 {
		return p.ID
	}
	return allGentle
}

// pauseAtMost is the longest pause after a policy's batch.
func pauseAtMost(p *record.InForce) time.Duration {
	if p.Limits.PaceShare() > 0 {
		return longestSharePause
	}
	return longestGentlePause
}

func newPace() *pace {
	return &pace{
		sleep: backoff.Sleep, count: countWorkers, look: seeOthers, lane: make(chan struct{}, 1),
		here: map[budget]int{}, all: map[budget]int{},
	}
}

// join counts a worker until the returned function is called.
func (c *pace) join(b budget) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here[b]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.here[b]--
	}
}

// share returns one worker's part of the time on a policy.
func (c *pace) share(p *record.InForce) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, share := budgetOf(p), p.Limits.PaceShare()
	switch {
	case share > 0:
	case c.busy:
		share = gentleShare
	default:
		share = quietShare
	}
	return share / float64(max(c.here[b], c.all[b], 1))
}

// mayCount reports whether it is time to count workers in the database, and records that the caller does.
func (c *pace) mayCount(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := now.Sub(c.countedAt); since >= 0 && since < factsInterval {
		return false
	}
	c.countedAt = now
	return true
}

// counted records the numbers of workers.
func (c *pace) counted(workers map[budget]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = workers
}

// mayLook reports whether a look keeps to the looks' part of the time, and records that the caller does. It calls looked in any case.
func (c *pace) mayLook(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := now.Sub(c.lookedAt); c.looking || since >= 0 && since < (lookShare-1)*c.lookTook {
		return false
	}
	c.looking = true
	return true
}

// looked records a look.
func (c *pace) looked(others bool, began, ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking, c.lookedAt, c.lookTook = false, ended, ended.Sub(began)
	if others {
		c.seen = ended
	}
	since := ended.Sub(c.seen)
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

// countWorkers counts the workers that have a shard of a policy that shares the time.
func countWorkers(ctx context.Context, conn *pgx.Conn) (map[budget]int, error) {
	rows, err := conn.Query(ctx, `
		select case when p.spec ->> 'pace' like '%\%' then p.id else $1 end, count(*)
		  from lapse.shard s join lapse.policy p on p.id = s.policy_id and p.version = s.version
		 where not s.done and s.holder is not null and s.lease_until > clock_timestamp()
		   and p.spec ->> 'pace' is distinct from '`+policyfile.PaceUnlimited+`'
		 group by 1`, allGentle)
	if err != nil {
		return nil, fmt.Errorf("count the workers that share the time: %w", err)
	}
	workers := map[budget]int{}
	var of budget
	var n int
	_, err = pgx.ForEachRow(rows, []any{&of, &n}, func() error { workers[of] = n; return nil })
	if err != nil {
		return nil, fmt.Errorf("count the workers that share the time: %w", err)
	}
	return workers, nil
}

// seeOthers reports whether a session that is not ours runs a statement or ran one in the last 20 ms. A login without pg_read_all_stats
// sees only sessions that hold a snapshot or have written, as a session does while it reads or changes rows. Of an application whose
// statements are short one look sees little, so there is one after each batch.
func seeOthers(ctx context.Context, conn *pgx.Conn) (others bool, err error) {
	err = conn.QueryRow(ctx, `
		select exists (
		 select from pg_stat_get_activity(null) a
		  where a.datid <> 0 and coalesce(a.backend_type, 'client backend') = 'client backend' and a.application_name not like 'lapse%'
		    and case when a.state is null or a.state = 'disabled' then a.backend_xmin is not null
		             else a.state = 'active' or a.state_change > clock_timestamp() - interval '20 ms' end)`).Scan(&others)
	if err != nil {
		return false, fmt.Errorf("look for other sessions at work: %w", err)
	}
	return others, nil
}

// shareTime counts the workers that share the time, unless that was done lately, and looks for other active sessions, if the policy's pace
// depends on them.
func (w *worker) shareTime(ctx context.Context, p *record.InForce) error {
	if w.pace.mayCount(w.now()) {
		workers, err := w.pace.count(ctx, w.session.Control)
		if err != nil {
			return err
		}
		w.pace.counted(workers)
	}
	began := w.now()
	if budgetOf(p) != allGentle || !w.pace.mayLook(began) {
		return nil
	}
	others, err := w.pace.look(ctx, w.session.Control)
	w.pace.looked(err == nil && others, began, w.now())
	return err
}

// waitAfterBatch waits until this worker's part of the time is kept after its last batch. It ends early with ctx; the caller checks ctx.
func (w *worker) waitAfterBatch(ctx, work context.Context, t *turn) error {
	if !paced(t.policy) {
		return nil
	}
	if err := w.shareTime(work, t.policy); err != nil {
		return err
	}
	share := w.pace.share(t.policy)
	t.memory.pauses.change(func(d *delay) { d.share = share })
	if w.batchOf == nil {
		return nil
	}
	worked := w.batchTook - w.batchSlept
	until := w.batchEnded.Add(time.Duration(float64(worked)*(1/w.pace.share(w.batchOf)-1)) - w.batchSlept)
	length := min(until.Sub(w.now()), pauseAtMost(w.batchOf)) // the last batch may have been another policy's
	w.batchOf = nil
	if length > 0 {
		_ = w.pace.sleep(ctx, length)
		w.metrics.throttled.WithLabelValues(string(t.policy.Name), t.policy.TableName, throttlePace).Add(length.Seconds())
	}
	return nil
}

// takeTime begins a batch that shares the time. The returned function ends it. A batch of several portions is mostly pauses: it waits for no other,
// and none waits for it.
func (w *worker) takeTime(ctx context.Context, p *record.InForce, o *batch.Order) (end func()) {
	leave := func() {}
	if o.Portions < 2 {
		leave = w.pace.enter(ctx)
	}
	began := w.now()
	w.batchSlept = 0
	return func() {
		leave()
		w.batchOf, w.batchEnded = p, w.now()
		w.batchTook = w.batchEnded.Sub(began)
	}
}
