package executor

import (
	"cmp"
	"sync"
	"time"

	"lapse/executor/batch"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// paced reports whether a policy's batches share the time: their rows are found and deleted in portions, and each is followed by a pause.
func paced(p *record.InForce) bool { return p.Limits.Pace != policyfile.PaceUnlimited }

const (
	// portionWork is the time of a portion's rows: see batchSize.learnGentle. An application meets one portion of a worker at a time.
	portionWork = 800 * time.Microsecond
	// leastPause is the least pause after a portion, in times of the portion, unless the worker's part of the time asks for less. What is missing of that part
	// follows after the batch.
	leastPause = 4
	// mostPortions bounds what a batch has to do over if it fails.
	mostPortions = 10
	// singlePortion is how many times as many rows the only portion of a batch has, since what the batch costs beside them is paid for these alone.
	singlePortion = 4
)

// sizing decides how many rows a policy's next batch on a shard has, and how it finds them. It only affects speed: another process starts
// over. Safe for concurrent use.
type sizing struct {
	mu       sync.Mutex
	size     batchSize         // of a portion, for a policy that shares the time
	portion  time.Duration     // what a portion takes, with its part of what a batch costs beside; 0: not known
	most     int               // the most portions of a batch: fewer after some have failed; 0: mostPortions
	single   bool              // batches of this run end after one portion
	last     int               // the size of the last batch
	searches map[int64]*search // by shard: the searches for a row that resists
	shapes   shapes
}

// forget drops what is known of a run's shards.
func (s *sizing) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.shapes)
	clear(s.searches)
	s.single = false
}

// next returns the order of the next batch, before its rows are granted. share is the worker's part of the time, span how long a batch with its
// pauses may last: what a batch costs beside its rows is paid once for all its portions.
func (s *sizing) next(p *record.InForce, share float64, span time.Duration) batch.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !paced(p) {
		return batch.Order{Limit: s.size.next(p.Batch)}
	}
	rows := s.size.nextGentle(p.Batch)
	if s.portion == 0 {
		return batch.Order{Limit: rows}
	}
	times, pause := float64(span)/float64(s.portion), 1/share-1
	portions := min(int(times/(1+min(pause, leastPause))), cmp.Or(s.most, mostPortions), p.Batch/rows)
	if pause > 0 { // the pause after the batch is no longer than that
		portions = min(portions, int(float64(pauseAtMost(p))/(pause*float64(s.portion))))
	}
	if portions < 2 || s.single {
		return batch.Order{Limit: min(singlePortion*rows, p.Batch)}
	}
	return batch.Order{Limit: portions * rows, Portions: portions, Pause: min(pause, times/float64(portions)-1)}
}

// rows returns the size of the last batch.
func (s *sizing) rows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// order completes the order of the next batch, which was granted so many rows, for a shard: a whole leaf or a slice of one. A batch that is careful, or
// searches for a row, has one portion.
func (s *sizing) order(l *batch.Lease, p *record.InForce, o batch.Order, granted int) batch.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	usual := p.Definition.Shapes()[0]
	if l.InHeap && usual == functions.ShapeRange {
		usual = functions.ShapeHeap
	}
	o.Shape, o.Careful = s.shapes.next(l.Shard, usual)
	search, portion := s.searches[l.Shard], o.Portion()
	if portions := granted / portion; portions > 1 && search == nil && !o.Careful {
		o.Limit, o.Portions = portions*portion, portions
	} else {
		o.Limit, o.Portions, o.Pause = min(granted, singlePortion*portion), 0, 0
	}
	switch {
	case search == nil:
		if !o.Careful {
			s.last = o.Limit
		}
		return o
	case search.among == 0 && search.step >= o.Limit && o.Limit > 1:
		delete(s.searches, l.Shard)
		return o
	}
	return search.next(o)
}

// through learns from a durable batch. During a search on the shard, the batch's size and time say nothing about other batches, except in
// a search for a row that takes too long: all rows may.
func (s *sizing) through(p *record.InForce, shard int64, o batch.Order, done *batch.Result, wanted time.Duration) (searched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shapes.through(shard, o.Careful)
	if search := s.searches[shard]; search != nil {
		searched = !search.slow || search.among == 0 || o.StepOver
		search.through(o, done.Picked, done.Deleted > 0)
		if done.Finished {
			delete(s.searches, shard)
		}
	}
	switch full := !done.PassOver; {
	case searched:
	case !paced(p):
		s.size.learn(o.Limit, full, done.Took, wanted)
	case !done.First:
		if done.Portion > 0 {
			beside := max(done.Work-time.Duration(done.Portions)*done.Portion, 0)
			s.portion = time.Duration(float64(done.Portion)*float64(s.size.rows)/float64(o.Portion())) + beside/mostPortions
		}
		if !o.Careful {
			s.most = min(cmp.Or(s.most, mostPortions)+1, mostPortions)
		}
		if o.Portions > 1 {
			s.single = s.single || done.Portions == 1 && full && done.Work < wanted
		}
		s.size.learnGentle(o.Portion(), done.Portion, min(portionWork, wanted))
	}
	return searched
}

// blocked records that a batch failed because rows were locked, referred to, or loaded meanwhile. It reports whether to try a careful one
// at once.
func (s *sizing) blocked(shard int64, o batch.Order, err error) bool {
	switch schemas.StateOf(err) {
	case schemas.SQLStateLockNotAvailable, schemas.SQLStateRange, schemas.SQLStateForeignKeyViolation, schemas.SQLStateRestrictViolation:
	default:
		return false
	}
	if o.Careful || o.StepOver {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shapes.blocked(shard, o.Portions)
	if o.Portions > 1 {
		s.most = max(o.Portions/2, 1)
	}
	return true
}

// search starts a search on a shard for the row that made a batch of so many rows fail or take too long. It reports whether a search was
// under way. If batches take too long, because of one row or of all, they become smaller.
func (s *sizing) search(shard int64, failed int, slow bool) (already bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if already = s.searches[shard] != nil; !already {
		s.searches[shard] = &search{}
	}
	s.searches[shard].failed(failed, slow)
	if slow {
		s.size.halve(min(failed, cmp.Or(s.size.rows, failed)))
	}
	return already
}

// putAside forgets a size that is small because of one row.
func (s *sizing) putAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = batchSize{}
}
