package executor

import (
	"sync"
	"time"

	"lapse/executor/batch"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// paced reports whether a policy's batches share the time: they are small, and each is followed by a pause.
func paced(p *record.InForce) bool { return p.Limits.Pace != policyfile.PaceUnlimited }

// gentleWork is the time of a batch's rows at gentle pace: see batchSize.learnGentle.
const gentleWork = 2 * time.Millisecond

// sizing decides how many rows a policy's next batch on a shard has, and how it finds them. It only affects speed: another process starts
// over. Safe for concurrent use.
type sizing struct {
	mu       sync.Mutex
	size     batchSize
	searches map[int64]*search // by shard: the searches for a row that resists
	shapes   shapes
}

// forget drops what is known of a run's shards.
func (s *sizing) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.shapes)
	clear(s.searches)
}

// limit returns the size of the next batch.
func (s *sizing) limit(p *record.InForce) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if paced(p) {
		return s.size.nextGentle(p.Batch)
	}
	return s.size.next(p.Batch)
}

// rows returns the current size of batches.
func (s *sizing) rows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size.rows
}

// order returns the order of the next batch on a shard: at most limit rows. The shard is a whole leaf or a slice of one.
func (s *sizing) order(l *batch.Lease, p *record.InForce, limit int) batch.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	usual := p.Definition.Shapes()[0]
	if l.InHeap && usual == functions.ShapeRange {
		usual = functions.ShapeHeap
	}
	o := batch.Order{Limit: limit}
	o.Shape, o.Careful = s.shapes.next(l.Shard, usual)
	search := s.searches[l.Shard]
	if search == nil {
		return o
	}
	if search.among == 0 && search.step >= limit && limit > 1 {
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
		s.size.learnGentle(o.Limit, full, done.Work, min(gentleWork, wanted))
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
	s.shapes.blocked(shard)
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
		s.size.halve(failed)
	}
	return already
}

// putAside forgets a size that is small because of one row.
func (s *sizing) putAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = batchSize{}
}
