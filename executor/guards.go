package executor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/planner/record"
	"lapse/schemas"
)

const (
	// factsInterval is how long one reading of the database is believed.
	factsInterval = time.Second
	// blindTime is how long an executor without a look that succeeded calls itself ready.
	blindTime = 30 * time.Second
	// longestPause is the longest pause between two batches of a shard. It is far below the length of a lease, which the
	// worker holds meanwhile.
	longestPause = 5 * time.Second
	// crowdedLasts is how long a look is believed that showed too few connections.
	crowdedLasts = 10 * time.Second
	// tableInterval is how long the statistics of a table are believed.
	tableInterval = 10 * time.Second
	// tableForgotten is when those of a policy that has no batches any more are thrown away.
	tableForgotten = time.Hour
)

// guards is the one place that asks the guards: for all workers, with facts of one look. It logs each change of an answer
// once, and counts. Safe for concurrent use.
type guards struct {
	list    []guard.Guard
	log     *slog.Logger
	metrics *Metrics
	memory  guard.Memory

	mu      sync.Mutex    // not held during a look
	looking chan struct{} // closed when the look that is under way has ended; nil: none is
	facts   *guard.Facts
	begun   time.Time                   // the executor's beginning
	seen    time.Time                   // when the last look that succeeded began
	whole   guard.Answer                // what was answered last for the whole database
	said    map[schemas.PolicyName]said // what was logged last; "" is the whole database
	// backends are the processes of the server that run batches, by worker.
	backends map[int]int32
	tables   map[schemas.PolicyID]tableFacts
	stale    bool // a session was opened since the last look, to another server perhaps
	beats    beats
}

// tableFacts are the statistics of a policy's table, and when they were read.
type tableFacts struct {
	at    time.Time
	table *guard.Table
}

// said is an answer that was logged, as it was given last.
type said struct {
	verdict guard.Verdict
	reason  guard.Reason
	until   time.Time
	detail  string
	fix     string
}

// text is the answer for a person.
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

// ask returns the strictest answer for a policy, or for the whole database where p is nil. It reads the database at
// most once in factsInterval: a worker that asks during a reading waits for its facts, and reads itself if it fails. An error says
// that it could not look.
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
		g.report(p.Name, &guard.Answer{}) // what was said of the database says it
	} else {
		g.report(p.Name, &own)
	}
	return own, nil
}

// refresh takes new facts. It is called with the mutex, and lets go of it meanwhile.
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

// fresh reports whether the next question needs no look.
func (g *guards) fresh(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.believed(now)
}

// believed reports whether the last look still holds. It is called with the mutex.
func (g *guards) believed(now time.Time) bool {
	return g.facts != nil && !g.stale && now.Sub(g.seen) < factsInterval
}

// awaitFacts waits until another worker's reading has ended; see boundedConn for how long that takes. It is called with the
// mutex, and lets go of it meanwhile.
func (g *guards) awaitFacts() {
	ended := g.looking
	g.mu.Unlock()
	<-ended
	g.mu.Lock()
}

// readTable reads the statistics of a policy's table, at most once in tableInterval. They are asked for where a batch is about to
// run, and not with each look: of many policies most have nothing to delete.
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
	g.backends[worker], g.stale = int32(backend), true
}

// crowded reports whether the server has so few connections left that all workers but one should give theirs back. It forgets when
// nobody looks any more: the one that should may have no connection.
func (g *guards) crowded(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts != nil && now.Sub(g.seen) < crowdedLasts && g.facts.Crowded()
}

// begin forgets when the last look was: an executor that begins gets blindTime for its first.
func (g *guards) begin(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = now
}

// blind returns an error if no look has succeeded for blindTime.
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

// last returns what was answered last for the whole database.
func (g *guards) last() guard.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.whole
}

// report logs an answer if it is another than before.
func (g *guards) report(of schemas.PolicyName, a *guard.Answer) {
	is := said{a.Verdict, a.Reason, a.Until, a.Detail, a.Fix}
	if g.said[of].reason == a.Reason {
		if a.Verdict != guard.Go {
			g.said[of] = is // its numbers are others
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
		if !a.Until.IsZero() {
			log.Info("nothing is deleted for a while", "reason", a.Reason, "detail", a.Detail)
			break
		}
		log.Warn("nothing is deleted", "reason", a.Reason, "detail", a.Detail, "fix", a.Fix)
	}
	g.said[of] = is
}

// saying returns what was answered last for a policy, or for the whole database.
func (g *guards) saying(of schemas.PolicyName) said {
	g.mu.Lock()
	defer g.mu.Unlock()
	whole, own := g.said[""], g.said[of]
	if whole.verdict > own.verdict {
		own = whole
	}
	return own
}

// own returns what was answered last for a policy alone.
func (g *guards) own(of schemas.PolicyName) said {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.said[of]
}

// skipped counts a turn that a due policy does not get.
func (g *guards) skipped(p *record.InForce, reason guard.Reason) {
	g.metrics.skips.WithLabelValues(string(p.Name), p.TableName, string(reason)).Inc()
}

// mayGo asks the guards for one batch, and reads the table's statistics before, where they are old.
func (w *worker) mayGo(ctx context.Context, p *record.InForce) (guard.Answer, error) {
	if err := w.guards.readTable(ctx, w.session.Control, p, w.now()); err != nil {
		return guard.Answer{}, err
	}
	return w.guards.ask(ctx, w.session.Control, p, w.now())
}

// refused ends a turn because a guard lets no batch run: for as long as the clock says, where that closes the policy's window. If none may
// run in the whole database, readiness says so at once.
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
