package executor

import (
	"cmp"
	"slices"
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
// It is fair across all workers. A policy has at most one turn at a time and, but for shared looks, at most one for each list; all workers that help with
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
	looks   []*turn       // turns that are looks, to be made together
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
	due := s.nextDue(now)
	if now.Before(s.notBefore) { // after a failed reading, nothing is done until the next
		due = dueNext{readAt: s.notBefore, lookAt: s.notBefore}
	}
	idle := due.turn == nil && due.looks == nil
	read := !s.reading && !now.Before(due.readAt)
	var help *turn
	if idle && !read {
		help = s.needsHelp()
	}
	switch {
	case idle && !read && help == nil && s.reading:
		return task{until: due.lookAt, changed: s.changed}
	case idle && !read && help == nil:
		return task{until: earlier(due.readAt, due.lookAt), changed: s.changed}
	case !connected && s.readAt.IsZero():
		return s.firstConnect(now)
	case !connected:
		return task{connect: true}
	case due.looks != nil && !read: // otherwise looks that are always due would keep the list from being read
		looks := make([]*turn, len(due.looks))
		for i, p := range due.looks {
			looks[i] = s.begin(p)
		}
		return task{looks: looks}
	case due.turn != nil:
		t := s.begin(due.turn)
		t.whole = s.goal.whole(due.turn)
		return task{turn: t}
	case read:
		s.reading, s.readStep, s.readBegan = true, s.step, now
		return task{read: true}
	default:
		help.join()
		return task{turn: help}
	}
}

// begin opens a policy's turn.
func (s *scheduler) begin(p *record.InForce) *turn {
	s.step++
	t := newTurn(p, s.memory(p))
	s.open, s.opened[p.ID] = append(s.open, t), s.step
	return t
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

// othersWork reports whether a worker other than this one has a session.
func (s *scheduler) othersWork(worker int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions) > 1 || len(s.sessions) == 1 && !s.sessions[worker]
}

// dueNext is the next policy to get a turn, or those whose looks are made together, or neither.
type dueNext struct {
	turn   *record.InForce
	looks  []*record.InForce
	readAt time.Time // when to read the list again
	lookAt time.Time // when a look that is shared is due next, or a time before that
}

// nextDue returns what is due. A turn is opened only from a list that was read after the policy became due and after its last turn: an older
// list would open a run that is not due. A look that is shared opens no run, so its list need not be new.
func (s *scheduler) nextDue(now time.Time) dueNext {
	next := dueNext{readAt: now, lookAt: now.Add(rereadInterval)}
	if s.policies != nil && s.last <= s.listed {
		next.readAt = s.readAt.Add(s.goal.reread())
	}
	if s.answer.Stops() {
		next.readAt = s.readAt.Add(factsInterval)
		return next
	}
	for i := range s.policies {
		p := &s.policies[i]
		if !s.fresh(p.ID, s.listed) {
			continue
		}
		at, ok := s.goal.due(p)
		switch shares := ok && s.goal.shares(p); {
		case !ok:
		case shares && at.After(now):
			next.lookAt = earlier(next.lookAt, at)
		case shares:
			next.looks = append(next.looks, p)
		case at.After(s.readAt):
			next.readAt = earlier(next.readAt, at)
		case next.turn == nil || s.opened[p.ID] < s.opened[next.turn.ID]:
			next.turn = p
		}
	}
	if next.readAt.Before(s.readAfter) {
		next.readAt = s.readAfter
	}
	slices.SortFunc(next.looks, func(a, b *record.InForce) int { return cmp.Compare(s.opened[a.ID], s.opened[b.ID]) })
	switch looks := next.looks; {
	case len(looks) == 0:
	case next.turn != nil && s.opened[next.turn.ID] < s.opened[looks[0].ID]:
		next.looks = nil
	default:
		next.turn, next.looks = nil, looks[:min(len(looks), looksTogether)]
	}
	slices.SortFunc(next.looks, func(a, b *record.InForce) int { return cmp.Compare(a.ID, b.ID) }) // the same looks have one text, which the driver knows
	return next
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

// looked ends turns that were looks and found nothing. The list need not be read again for them.
func (s *scheduler) looked(turns []*turn) {
	if len(turns) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(t *turn) bool { return slices.Contains(turns, t) })
	s.wake()
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
