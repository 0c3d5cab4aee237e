package executor

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"lapse/internal/backoff"
	"lapse/planner"
	"lapse/schemas"
)

// versionKey names a policy version: what is learned of one says nothing of the next.
type versionKey struct {
	id      schemas.PolicyID
	version schemas.PolicyVersion
}

// policyMemory is what this process knows of a policy version. Nothing but the size of batches, pauses and counters depends
// on it. Safe for concurrent use.
type policyMemory struct {
	name schemas.PolicyName

	mu        sync.Mutex
	functions *functions               // what its batches run; nil until the first
	drops     *functions               // what runs when it drops a partition; nil until the first
	looks     *functions               // what its looks run; nil until the first
	lookedAt  time.Time                // when a look last found nothing due
	notedAt   time.Time                // when that was written down
	quiet     map[uint32]planner.Quiet // leaves that looks may leave out
	size      batchSize
	backoff   backoff.Backoff
	gone      int                  // how often in a row the version's deletion function was not there
	notBefore time.Time            // no turn before: after a retry or a stop
	stopped   error                // why it was stopped; nil otherwise
	stoppedBy string               // what was said of it last, until a turn ends well
	judged    bool                 // whether outdated was asked for
	outdated  error                // another lapse wrote the version's functions
	resists   error                // what was put aside in the last run; nil for nothing
	cause     error                // why this process put a shard aside in this run; nil if it did not
	behind    bool                 // the last run left due rows that somebody had locked
	locks     map[int64]int        // by shard: batches in a row of this run that did not get a lock
	searches  map[int64]*search    // by shard, where a row that resists is looked for
	causes    map[ServerError]bool // why rows of this run were entered in the quarantine
	shapes    shapes
	waits     map[int64]bool  // shards that a lock kept a batch from, since the policy last paused for one
	locker    locker          // who had something locked, and no run has ended since without
	lockMet   bool            // somebody's lock was in the way, and no run has ended since without
	heaps     map[uint32]bool // leaves whose batches go through their files
	counts    runCounts
	noIndex   string // what is said of an index that is missing
	// countTried is when what is due was counted last while the policy's rows stayed, and countNext when it may be again.
	countTried, countNext time.Time
	indexedAt             time.Time  // when it was looked for
	open                  bool       // this process has worked on the run of counts, and not seen its end
	spoken                int        // what was logged of the run: sayBegins and its kin
	logged                time.Time  // when the log said last how far it is
	expected              int64      // rows that it is to delete; 0: not known
	last                  Statistics // what the run did by all executors, when somebody asked last
	throttled             string     // why batches were held back last in this run
	share                 float64    // of the time that a worker's batches had, at gentle pace, when the last one ended
}

// memory returns what is known of a policy's version.
func (e *Executor) memory(p *planner.InForce) *policyMemory {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := versionKey{p.ID, p.Version}
	m := e.known[key]
	if m == nil {
		m = &policyMemory{name: p.Name, backoff: backoff.Backoff{Min: 50 * time.Millisecond, Max: 10 * time.Second}, locks: map[int64]int{}, searches: map[int64]*search{}, causes: map[ServerError]bool{}, shapes: shapes{}, quiet: map[uint32]planner.Quiet{}}
		e.known[key] = m
	}
	return m
}

// nextTurn returns when an armed policy is to have its next turn.
func (e *Executor) nextTurn(p *planner.InForce) (at time.Time, armed bool) {
	if p.State != schemas.Armed {
		return time.Time{}, false
	}
	m := e.memory(p)
	at, err := m.since(p).NextRun()
	if err != nil && !m.paused().After(e.now()) {
		e.stop(p, fmt.Errorf("find the next run: %w", err))
	}
	if until := m.paused(); until.After(at) {
		at = until
	}
	return at, true
}

// built returns what the version's batches run, and builds it first where need be.
func (m *policyMemory) built(build func() (*functions, error)) (*functions, error) {
	return m.once(&m.functions, build)
}

// builtDrops returns what runs when the version drops a partition, and builds it first where need be.
func (m *policyMemory) builtDrops(build func() (*functions, error)) (*functions, error) {
	return m.once(&m.drops, build)
}

// old returns why nothing of the version may run because another lapse wrote its functions; nil where this one did.
func (m *policyMemory) old(p *planner.InForce) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.judged {
		m.judged, m.outdated = true, p.Outdated()
	}
	return m.outdated
}

func (m *policyMemory) once(kept **functions, build func() (*functions, error)) (*functions, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *kept == nil {
		f, err := build()
		if err != nil {
			return nil, err
		}
		*kept = f
	}
	return *kept, nil
}

// builtLooks returns what the version's looks run, and builds it first where need be.
func (m *policyMemory) builtLooks(build func() (*functions, error)) (*functions, error) {
	return m.once(&m.looks, build)
}

// foundNothing takes down that a look found nothing due, and reports whether that is to be written down: noted is when it was last.
func (m *policyMemory) foundNothing(noted, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lookedAt, m.counts, m.cause, m.resists, m.behind = now, runCounts{}, nil, nil, false
	m.last, m.stoppedBy, m.open = Statistics{}, "", false
	m.backoff.Reset()
	m.gone = 0
	if noted.After(m.notedAt) {
		m.notedAt = noted
	}
	if now.Sub(m.notedAt) < lookedInterval {
		return false
	}
	m.notedAt = now
	return true
}

// quieted takes down of which leaves a look said that nothing will be due until something is written to them.
func (m *policyMemory) quieted(leaves []planner.Quiet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range leaves {
		m.quiet[q.Leaf] = q
	}
}

// quietMarks is what a look may leave out. What is remembered for too long is forgotten, and looked at once more.
func (m *policyMemory) quietMarks(now time.Time) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := make([]int64, 0, len(m.quiet))
	for leaf, q := range m.quiet {
		if !now.Before(q.Until) {
			delete(m.quiet, leaf)
			continue
		}
		marks = append(marks, q.Mark)
	}
	return marks
}

// since is the policy with what this process knows of its looks.
func (m *policyMemory) since(p *planner.InForce) *planner.InForce {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.lookedAt.After(p.LookedAt) {
		return p
	}
	with := *p
	with.LookedAt = m.lookedAt
	return &with
}

// limit is the size of the next batch.
func (m *policyMemory) limit(p *planner.InForce) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gentle(p) {
		return m.size.nextGentle(p.Batch)
	}
	return m.size.next(p.Batch)
}

// through takes down that a batch on a shard was durable.
func (m *policyMemory) through(p *planner.InForce, shard int64, o order, done *result, wanted time.Duration) {
	searched := m.stepped(shard, o, done)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backoff.Reset()
	m.gone = 0
	m.shapes.through(shard, o.careful)
	if searched {
		return
	}
	delete(m.locks, shard)
	switch full := !done.passOver; {
	case !gentle(p):
		m.size.learn(o.limit, full, done.took, wanted)
	case !done.first:
		m.size.learnGentle(o.limit, full, done.work, min(gentleWork, wanted))
	}
}

// dropped takes down that a shard's partition is gone.
func (m *policyMemory) dropped(shard int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backoff.Reset()
	delete(m.locks, shard)
}

// halve makes the next batch half as large.
func (m *policyMemory) halve(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size.halve(limit)
}

// locked counts the batches on a shard, one after the other, that did not get a lock.
func (m *policyMemory) locked(shard int64, err error) int {
	if schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks[shard]++
	return m.locks[shard]
}

// putAside takes down that a shard was put aside, because of cause where a row resists.
func (m *policyMemory) putAside(shard int64, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, shard)
	if cause != nil {
		m.size = batchSize{} // it is small because of this row
		m.cause = cause
	}
}

// paced takes down which share of the time a worker's batches have.
func (m *policyMemory) paced(share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = share
}

// throttle takes down why batches are held back; "" if they are not.
func (m *policyMemory) throttle(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.throttled = reason
}

// othersFirst takes down that a shard could not be worked on because of a lock, and reports whether others are to be tried before the policy
// pauses. A shard that was given back is the last to be given out again: one that comes a second time says that all were tried.
func (m *policyMemory) othersFirst(shard int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits[shard] {
		m.waits = nil
		return false
	}
	if m.waits == nil {
		m.waits = map[int64]bool{}
	}
	m.waits[shard] = true
	return true
}

// inTheWay takes down that somebody's lock is in the way, and says how loud that is: a person is told once, until it is not.
func (m *policyMemory) inTheWay() slog.Level {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lockMet {
		return slog.LevelDebug
	}
	m.lockMet = true
	return slog.LevelWarn
}

// pace returns what holds batches back, that share, and the size that batches have come to.
func (m *policyMemory) pace() (throttled string, share float64, rows int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.throttled, m.share, m.size.rows
}

// finish takes down what is left of a run that is over.
func (m *policyMemory) finish(p *planner.InForce, left *runState, rest quarantined) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resists, m.behind, m.throttled, m.stoppedBy, m.open = nil, left.behind, "", "", false
	m.lockMet = m.lockMet && (left.behind || left.aside > 0)
	if !left.behind {
		m.locker = locker{}
	}
	if left.aside > 0 {
		if m.cause == nil { // it was another process that tried
			m.cause = &ServerError{SQLState: left.state}
		}
		m.resists = &ResistingError{Policy: p.Name, Shards: left.aside, RetryAt: *left.retryAt, Cause: m.cause, Rows: rest.rows, Obstacles: rest.obstacles}
	} else if rest.rows > 0 {
		m.resists = &ResistingError{Policy: p.Name, Rows: rest.rows, Obstacles: rest.obstacles}
	}
}

// left returns what the last run left: due rows that somebody had locked, and what resists.
func (m *policyMemory) left() (behind bool, resists error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.behind, m.resists
}

// retry makes the policy pause, each time a little longer, and returns for how long.
func (m *policyMemory) retry(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	pause := m.backoff.Next()
	m.notBefore = now.Add(pause)
	return pause
}

// goneTries is how often the deletion function of the version in force is looked for, with pauses, before somebody must have dropped it:
// when `lapse apply` replaces a version, the next list has another.
const goneTries = 5

// goneForGood counts that it was not there, and reports whether that is no longer waited out.
func (m *policyMemory) goneForGood() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone++
	return m.gone >= goneTries
}

// pauseUntil lets the policy have no turn before an instant.
func (m *policyMemory) pauseUntil(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notBefore = at
}

// paused returns the instant before which the policy has no turn.
func (m *policyMemory) paused() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notBefore
}

// stopFor keeps the policy from its turns until an instant, and reports whether it was stopped by the same before; nil takes that back.
func (m *policyMemory) stopFor(err error, until time.Time) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = err
	if err != nil {
		again = m.stoppedBy == err.Error()
		m.notBefore, m.stoppedBy = until, err.Error()
	}
	return again
}

// stop returns why the policy is stopped, nil if it is not.
func (m *policyMemory) stop() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
}
