package executor

import (
	"sync"
	"time"

	"lapse/executor/guard"
	"lapse/internal/backoff"
	"lapse/planner/record"
	"lapse/schemas"
)

// scheduler decides what each worker does next: read the list of policies, open a policy's turn, help with an open turn, or wait. It is
// the same for Run and Once, which differ in their goal. Safe for concurrent use.
//
// It is fair across all workers. A policy has at most one turn at a time and at most one for each list, and all workers that help with
// the turn use up its share together. The next turn goes to the due policy that has waited longest since its last one. Workers help only
// when no other policy is due. So no policy waits longer than the turns before it.
type scheduler struct {
	goal   goal
	memory func(*record.InForce) *policyMemory
	now    func() time.Time

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when waiting workers should ask again

	// The last reading.
	policies []record.InForce
	answer   guard.Answer
	readAt   time.Time
	listed   uint64 // the step at which it began
	// Whether a reading is under way, and when the next may begin: later after one that failed, or one that took long.
	reading   bool
	readStep  uint64
	readBegan time.Time
	notBefore time.Time
	readAfter time.Time
	backoff   backoff.Backoff

	// The workers that have a session, and whether one is connecting for the first reading.
	sessions   map[int]bool
	connecting bool

	step   uint64 // counts turns that were opened or ended
	open   []*turn
	opened map[schemas.PolicyID]uint64 // the step of a policy's last opening
	ended  map[schemas.PolicyID]uint64 // the step of its last end
	last   uint64                      // the step at which any turn last ended
}

func newScheduler(g goal, memory func(*record.InForce) *policyMemory, now func() time.Time) *scheduler {
	return &scheduler{
		goal: g, memory: memory, now: now, changed: make(chan struct{}),
		opened: map[schemas.PolicyID]uint64{}, ended: map[schemas.PolicyID]uint64{}, sessions: map[int]bool{},
		backoff: backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second},
	}
}

// readShare bounds the time spent on reading lists to a tenth, however many policies there are: after a reading, the next one waits for
// readShare times as long as it took. Every turn asks for a new list.
const readShare = 9

// task is what a worker does next. The zero task is to wait.
type task struct {
	over    bool // the goal is reached: nothing is left to do
	connect bool // the worker needs a connection for its next task
	first   bool // the connection is for the first reading; no other worker connects meanwhile
	read    bool
	turn    *turn         // to open, or to help with
	until   time.Time     // wait until then, or until changed is closed
	changed chan struct{} // closed when something changed
}

// next returns a worker's next task. The worker owns its turn, or the reading, until it reports how that ended.
func (s *scheduler) next(connected bool) task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.goal.reached() {
		return task{over: true}
	}
	now := s.now()
	due, readAt := s.nextDue(now)
	if now.Before(s.notBefore) { // after a failed reading, nothing is done until the next
		due, readAt = nil, s.notBefore
	}
	read := !s.reading && !now.Before(readAt)
	var help *turn
	if due == nil && !read {
		help = s.needsHelp()
	}
	switch {
	case due == nil && !read && help == nil && s.reading:
		return task{until: now.Add(rereadInterval), changed: s.changed}
	case due == nil && !read && help == nil:
		return task{until: readAt, changed: s.changed}
	case !connected && s.readAt.IsZero():
		return s.firstConnect(now)
	case !connected:
		return task{connect: true}
	case due != nil:
		s.step++
		t := newTurn(due, s.memory(due))
		t.whole = s.goal.whole(due)
		s.open, s.opened[due.ID] = append(s.open, t), s.step
		return task{turn: t}
	case read:
		s.reading, s.readStep, s.readBegan = true, s.step, now
		return task{read: true}
	default:
		help.join()
		return task{turn: help}
	}
}

// firstConnect lets one worker connect for the first reading. The others wait for the list, so that a login with few connections keeps
// them for the worker that reads.
func (s *scheduler) firstConnect(now time.Time) task {
	if s.connecting || len(s.sessions) > 0 {
		return task{until: now.Add(rereadInterval), changed: s.changed}
	}
	s.connecting = true
	return task{connect: true, first: true}
}

// connectEnded records that firstConnect's worker is done connecting.
func (s *scheduler) connectEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connecting = false
	s.wake()
}

// hasSession records whether a worker has a session.
func (s *scheduler) hasSession(worker int, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[worker] == has {
		return
	}
	if has {
		s.sessions[worker] = true
		return
	}
	delete(s.sessions, worker)
	s.wake() // another worker may have to connect for the first reading
}

// lastSession removes the session of a worker that ends, and reports whether it was the last one.
func (s *scheduler) lastSession(worker int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, worker)
	return len(s.sessions) == 0
}

// othersWork reports whether a worker other than this one has a session.
func (s *scheduler) othersWork(worker int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions) > 1 || len(s.sessions) == 1 && !s.sessions[worker]
}

// nextDue returns the next policy to get a turn. If there is none, readAt is when to read the list again. A turn is opened only from a
// list that was read after the policy became due and after its last turn: an older list would open a run that is not due.
func (s *scheduler) nextDue(now time.Time) (next *record.InForce, readAt time.Time) {
	if s.policies == nil || s.last > s.listed {
		readAt = now
	} else {
		readAt = s.readAt.Add(s.goal.reread())
	}
	if s.answer.Stops() {
		return nil, s.readAt.Add(factsInterval)
	}
	for i := range s.policies {
		p := &s.policies[i]
		if !s.fresh(p.ID, s.listed) {
			continue
		}
		at, ok := s.goal.due(p)
		switch {
		case !ok:
		case at.After(s.readAt):
			readAt = earlier(readAt, at)
		case next == nil || s.opened[p.ID] < s.opened[next.ID]:
			next = p
		}
	}
	if readAt.Before(s.readAfter) {
		readAt = s.readAfter
	}
	return next, readAt
}

// fresh reports whether a policy has had no turn since a step.
func (s *scheduler) fresh(id schemas.PolicyID, since uint64) bool {
	for _, t := range s.open {
		if t.policy.ID == id {
			return false
		}
	}
	return s.ended[id] <= since
}

// working returns the policies that have a turn.
func (s *scheduler) working() map[schemas.PolicyID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[schemas.PolicyID]bool{}
	for _, t := range s.open {
		all[t.policy.ID] = true
	}
	return all
}

// needsHelp returns an open turn with more shards than workers.
func (s *scheduler) needsHelp() *turn {
	for _, t := range s.open {
		if t.needsHelp() {
			return t
		}
	}
	return nil
}

// list receives the list that a worker read.
func (s *scheduler) list(policies []record.InForce, a guard.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if policies == nil {
		policies = []record.InForce{}
	}
	s.policies, s.answer, s.readAt, s.listed, s.reading = policies, a, s.now(), s.readStep, false
	s.readAfter = s.readAt.Add(min(readShare*s.readAt.Sub(s.readBegan), rereadInterval))
	err := s.goal.listed(policies, &a, func(id schemas.PolicyID) bool { return s.fresh(id, s.listed) })
	if err != nil {
		s.policies, s.notBefore = nil, s.now().Add(s.backoff.Next())
		return err
	}
	s.backoff.Reset()
	return nil
}

// failed records that a worker could not read the list. No task starts until a reading succeeds.
func (s *scheduler) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies, s.reading, s.notBefore = nil, false, s.now().Add(s.backoff.Next())
	s.wake()
}

// ready records that a turn has a run, so that other workers may help.
func (s *scheduler) ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

// leave records that a worker is done with a turn. The turn ends with its last worker.
func (s *scheduler) leave(t *turn, end turnEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if !t.leave(end) {
		return
	}
	for i := range s.open {
		if s.open[i] == t {
			s.open = append(s.open[:i:i], s.open[i+1:]...)
			break
		}
	}
	s.step++
	s.ended[t.policy.ID], s.last = s.step, s.step
	s.goal.ended(t)
}

// wake makes waiting workers ask for a task again.
func (s *scheduler) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
