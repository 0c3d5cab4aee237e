package executor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/planner/record"
	"lapse/schemas"
)

const (
	// factsInterval is how long one reading of the facts is used.
	factsInterval = time.Second
	// blindTime is how long an executor stays ready without a successful reading of the facts.
	blindTime = 30 * time.Second
	// longestPause is the longest pause between two batches of a shard. It is far shorter than a lease, which the worker holds meanwhile.
	longestPause = 5 * time.Second
	// crowdedLasts is how long a reading that showed too few connections is used.
	crowdedLasts = 10 * time.Second
	// tableInterval is how long the statistics of a table are used.
	tableInterval = 10 * time.Second
	// tableForgotten is the age at which the table statistics of a policy without batches are dropped.
	tableForgotten = time.Hour
)

// guards asks the guards for all workers, from one shared reading of the facts. It counts, and logs each change of an answer once. Safe
// for concurrent use.
type guards struct {
	list    []guard.Guard
	log     *slog.Logger
	metrics *Metrics
	memory  guard.Memory

	mu      sync.Mutex    // not held during a reading
	looking chan struct{} // closed when the current reading ends; nil: there is none
	facts   *guard.Facts
	begun   time.Time                   // when the executor began
	seen    time.Time                   // when the last successful reading began
	whole   guard.Answer                // the last answer for the whole database
	said    map[schemas.PolicyName]said // the last answer logged; "" is the whole database
	// backends are the server processes that run batches, by worker.
	backends map[int]int32
	tables   map[schemas.PolicyID]tableFacts
	stale    bool // a session was opened since the last reading to another server, or to one that was restarted
	beats    beats
}

// tableFacts are the statistics of a policy's table, and when they were read.
type tableFacts struct {
	at    time.Time
	table *guard.Table
}

// said is the last answer that was logged.
type said struct {
	verdict guard.Verdict
	reason  guard.Reason
	until   time.Time
	detail  string
	fix     string
	warned  bool // it was logged as a warning
}

// text formats the answer for a person.
func (s *said) text() string {
	text := string(s.reason)
	for _, more := range []string{s.detail, s.fix} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

func newGuards(list []guard.Guard, memory *state.Folder, log *slog.Logger, m *Metrics) *guards {
	return &guards{
		beats: beats{folder: memory, log: log}, list: list, log: log, metrics: m, said: map[schemas.PolicyName]said{},
		backends: map[int]int32{}, tables: map[schemas.PolicyID]tableFacts{},
	}
}

// ask returns the strictest answer for a policy, or for the whole database if p is nil. It reads the facts at most once in
// factsInterval. A worker that asks during a reading waits for it, and reads itself if that fails. An error means that the reading
// failed.
func (g *guards) ask(ctx context.Context, q guard.Querier, p *record.InForce, now time.Time) (guard.Answer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.believed(now) {
		if g.looking != nil {
			g.awaitFacts()
		} else if err := g.refresh(ctx, q, now); err != nil {
			return guard.Answer{}, err
		}
	}
	question := guard.Question{Now: now, Facts: g.facts, Memory: &g.memory}
	whole := guard.Strictest(g.list, &question)
	g.whole = whole
	g.report("", &whole)
	if p == nil {
		return whole, nil
	}
	question.Policy, question.Table = p, g.tables[p.ID].table
	own := guard.Strictest(g.list, &question)
	if own.Reason == whole.Reason {
		g.report(p.Name, &guard.Answer{}) // the answer for the database covers it
	} else {
		g.report(p.Name, &own)
	}
	return own, nil
}

// refresh reads new facts. The caller holds the mutex; refresh unlocks it during the reading.
func (g *guards) refresh(ctx context.Context, q guard.Querier, now time.Time) error {
	ended := make(chan struct{})
	g.looking, g.stale = ended, false
	backends := slices.Collect(maps.Values(g.backends))
	g.mu.Unlock()
	ticket := g.memory.Unconfirmed.Draw()
	recalled := g.beats.folder.Recall()
	facts, err := guard.Read(ctx, q, backends)
	if err == nil {
		facts.Compare(recalled)
		err = g.beats.beat(ctx, q, facts, now)
	}
	g.mu.Lock()
	g.looking, g.facts = nil, facts
	close(ended)
	if err != nil {
		g.facts = nil
		return err
	}
	g.seen = now
	g.memory.Observe(facts, ticket, now)
	return nil
}

// fresh reports whether the next question can be answered without a reading.
func (g *guards) fresh(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.believed(now)
}

// believed reports whether the last reading is still valid. The caller holds the mutex.
func (g *guards) believed(now time.Time) bool {
	return g.facts != nil && !g.stale && now.Sub(g.seen) < factsInterval
}

// awaitFacts waits until another worker's reading has ended, which boundedConn bounds. The caller holds the mutex; awaitFacts unlocks it
// meanwhile.
func (g *guards) awaitFacts() {
	ended := g.looking
	g.mu.Unlock()
	<-ended
	g.mu.Lock()
}

// readTable reads the statistics of a policy's table, at most once in tableInterval. It runs before a batch, not with each reading of
// the facts, because most policies have nothing to delete.
func (g *guards) readTable(ctx context.Context, q guard.Querier, p *record.InForce, now time.Time) error {
	g.mu.Lock()
	last, known := g.tables[p.ID]
	g.mu.Unlock()
	if known && now.Sub(last.at) < tableInterval {
		return nil
	}
	table, err := guard.ReadTable(ctx, q, p.TableOID)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.tables, func(_ schemas.PolicyID, t tableFacts) bool { return now.Sub(t.at) >= tableForgotten })
	g.tables[p.ID] = tableFacts{now, table}
	return nil
}

// setBackend records the server process that runs a worker's batches; 0 removes it.
func (g *guards) setBackend(worker int, backend uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if backend == 0 {
		delete(g.backends, worker)
		return
	}
	g.backends[worker] = int32(backend)
}

// opened says that a session was opened. The last reading is valid for it only if it is of the same database, on a server that was not
// restarted since: a copy may have been put below the executor.
func (g *guards) opened(s *batch.Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale = g.stale || g.looking != nil || g.facts != nil && !g.facts.Of(s.Server())
}

// crowded reports whether the server has so few connections left that all workers but one should give theirs back. Its answer expires
// after crowdedLasts, because the remaining worker may have no connection to read the facts again.
func (g *guards) crowded(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts != nil && now.Sub(g.seen) < crowdedLasts && g.facts.Crowded()
}

// unaudited reports whether the last reading showed that no audit is required.
func (g *guards) unaudited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts != nil && g.facts.Unaudited()
}

// begin resets the time of the last reading: an executor that begins has blindTime for its first.
func (g *guards) begin(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = now
}

// blind returns an error if no reading has succeeded for blindTime.
func (g *guards) blind(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.seen
	if g.begun.After(last) {
		last = g.begun
	}
	if ago := now.Sub(last); ago >= blindTime {
		return fmt.Errorf("check the audit: the database has not answered for %s", ago.Round(time.Second))
	}
	return nil
}

// last returns the last answer for the whole database.
func (g *guards) last() guard.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.whole
}

// passing reports whether an answer that stops batches is over soon, without a person.
func passing(a *guard.Answer) bool {
	return !a.Until.IsZero() || a.Reason == guard.AuditorStarting && a.Verdict == guard.Wait
}

// report logs an answer if it differs from the one before, or is not passing any more.
func (g *guards) report(of schemas.PolicyName, a *guard.Answer) {
	was, warns := g.said[of], a.Verdict != guard.Go && !passing(a)
	is := said{a.Verdict, a.Reason, a.Until, a.Detail, a.Fix, warns || was.reason == a.Reason && was.warned}
	if was.reason == a.Reason && was.warned == is.warned {
		if a.Verdict != guard.Go {
			g.said[of] = is // only its numbers changed
		}
		return
	}
	log := g.log
	if of != "" {
		log = log.With("policy", of)
	}
	switch a.Verdict {
	case guard.Go:
		delete(g.said, of)
		log.Info("deleting again")
		return
	case guard.Slow:
		log.Warn("deletion is slowed down", "reason", a.Reason, "detail", a.Detail, "fix", a.Fix, "slowdown", a.Slowdown)
	default:
		if passing(a) {
			log.Info("nothing is deleted for a while", "reason", a.Reason, "detail", a.Detail)
			break
		}
		log.Warn("nothing is deleted", "reason", a.Reason, "detail", a.Detail, "fix", a.Fix)
	}
	g.said[of] = is
}

// saying returns the last answer for a policy, or for the whole database.
func (g *guards) saying(of schemas.PolicyName) said {
	g.mu.Lock()
	defer g.mu.Unlock()
	whole, own := g.said[""], g.said[of]
	if whole.verdict > own.verdict {
		own = whole
	}
	return own
}

// own returns the last answer for a policy alone.
func (g *guards) own(of schemas.PolicyName) said {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.said[of]
}

// skipped counts a turn that a due policy misses.
func (g *guards) skipped(p *record.InForce, reason guard.Reason) {
	g.metrics.skips.WithLabelValues(string(p.Name), p.TableName, string(reason)).Inc()
}

// mayGo asks the guards for one batch, after it has refreshed the table's statistics if they are old.
func (w *worker) mayGo(ctx context.Context, p *record.InForce) (guard.Answer, error) {
	if err := w.guards.readTable(ctx, w.session.Control, p, w.now()); err != nil {
		return guard.Answer{}, err
	}
	return w.guards.ask(ctx, w.session.Control, p, w.now())
}

// refused ends a turn because a guard lets no batch run. If the policy's window is closed, the policy waits until it opens. If no batch
// may run in the whole database, readiness shows it at once.
func (w *worker) refused(t *turn, a *guard.Answer) turnEnd {
	if !a.Until.IsZero() {
		t.holds(string(a.Reason), nil)
		t.memory.pauses.change(func(d *delay) { d.until = a.Until })
		t.reachedLimit(a.Detail)
		w.metrics.limited(t.policy, string(a.Reason))
		return turnLimited
	}
	t.memory.pauses.change(func(d *delay) { d.until = w.now().Add(factsInterval) })
	var refusal error
	if whole := w.guards.last(); whole.Stops() {
		w.answered(&whole)
	} else if a.Verdict == guard.Refuse {
		refusal = a.Err()
	}
	t.holds(string(a.Reason), refusal)
	return turnRefused
}
