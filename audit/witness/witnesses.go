package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
	"lapse/internal/backoff"
)

// Submission is a checkpoint that the log has.
type Submission struct {
	Note   []byte
	Size   int64
	At     time.Time   // when it was signed
	Proofs tree.Proofs // that it grew from sizes that a witness is likely to have seen
}

// Log reads the log back. It is called rarely, from other goroutines than the auditor's.
type Log interface {
	// Prove makes the proof that the log of a checkpoint grew from a size.
	Prove(ctx context.Context, from int64, signed []byte) (tlog.TreeProof, error)
	// Size is how many leaves the log has.
	Size(ctx context.Context) (int64, error)
}

// Witnesses get checkpoints cosigned, and send them to anchors. Safe for concurrent use.
type Witnesses struct {
	quorum   int
	members  []*member
	log      *slog.Logger
	metrics  *Metrics
	client   *http.Client
	pauses   backoff.Backoff
	outlets  []*outlet
	progress chan struct{}

	mu     sync.Mutex
	source Log
	newest *round
	ready  []*round // for the log to have
	since  time.Time
	err    error
}

// member is a witness, with what is known about it.
type member struct {
	Witness
	seen  int64 // number of records that it has seen; 0: none, or not known
	asked int64 // size that it was last sent: it may have accepted that, and its answer was lost
}

// round is a checkpoint on its way.
type round struct {
	*Submission
	open   int       // number of outlets that have not tried it, and have nothing newer
	after  time.Time // when the next one was signed; zero for the newest
	lines  map[*member]*tree.Cosignature
	unsaid bool // the log lacks some of the cosignatures
}

const (
	pauseMin = time.Second
	pauseMax = 5 * time.Minute
)

// New returns the witnesses and anchors of a log. A checkpoint counts if quorum of the witnesses have cosigned it. Run queries them.
func New(members []Witness, quorum int, anchors []Anchor, metrics *Metrics, log *slog.Logger) *Witnesses {
	w := &Witnesses{
		quorum: quorum, log: log, metrics: metrics, client: NewClient(), pauses: backoff.Backoff{Min: pauseMin, Max: pauseMax},
		progress: make(chan struct{}, 1),
	}
	for _, m := range members {
		at := &member{Witness: m}
		w.members = append(w.members, at)
		w.outlet("witness", m.Key.Name(), func(ctx context.Context, r *round) error { return w.cosign(ctx, at, r) })
	}
	for _, a := range anchors {
		w.outlet("anchor", a.Name(), func(ctx context.Context, r *round) error { return a.Put(ctx, w.client, r.Note) })
	}
	return w
}

func (w *Witnesses) outlet(kind, name string, send func(context.Context, *round) error) {
	w.outlets = append(w.outlets, &outlet{kind: kind, name: name, send: send, fresh: make(chan struct{}, 1)})
	w.metrics.failing.WithLabelValues(kind, name).Set(0)
}

// Run queries them until ctx ends.
func (w *Witnesses) Run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	var all sync.WaitGroup
	for _, o := range w.outlets {
		all.Go(func() { w.serve(ctx, o) })
	}
	all.Wait()
}

// Progress receives when the result of Take, Settled or Err may have changed.
func (w *Witnesses) Progress() <-chan struct{} { return w.progress }

func (w *Witnesses) tell() {
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// Begin sets where to read the log back from now on.
func (w *Witnesses) Begin(source Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.source = source
}

// Submit takes the newest checkpoint.
func (w *Witnesses) Submit(s *Submission) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &round{Submission: s, lines: map[*member]*tree.Cosignature{}}
	if w.newest != nil {
		w.newest.after = s.At
	}
	w.newest = r
	if w.since.IsZero() && len(w.members) > 0 {
		w.lag(s.At)
	}
	for _, o := range w.outlets {
		if o.next != nil && o.counted {
			w.leave(o.next)
		}
		o.next, o.counted = r, true
		r.open++
		o.wake()
	}
}

// lag sets since when a checkpoint has been without its quorum; zero: none is.
func (w *Witnesses) lag(since time.Time) {
	w.since = since
	w.metrics.setSince(since)
}

// Wants reports whether a witness may need a proof from this size.
func (w *Witnesses) Wants(size int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.members, func(m *member) bool { return m.seen == size || m.asked == size })
}

// Take returns the next checkpoint with cosignatures for the log; nil if there is none.
func (w *Witnesses) Take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ready) == 0 {
		return nil
	}
	r := w.ready[0]
	w.ready, r.unsaid = w.ready[1:], false
	signed := slices.Clone(r.Note)
	for _, m := range w.members {
		if c := r.lines[m]; c != nil {
			signed = append(signed, c.Line...)
		}
	}
	return signed
}

// Settled reports whether every witness and anchor has the newest checkpoint, or has failed, and Take has nothing.
func (w *Witnesses) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ready) == 0 && (w.newest == nil || w.newest.open == 0)
}

// Err is why the audit must end; nil while nothing is wrong with the log.
func (w *Witnesses) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// leave removes an outlet from a round, because it has tried it, or has a newer one.
func (w *Witnesses) leave(r *round) {
	r.open--
	w.handOut(r)
}

// handOut makes a round available to Take if no outlet still has to try it, and it has a cosignature that the log lacks.
func (w *Witnesses) handOut(r *round) {
	if r.open > 0 {
		return
	}
	if r.unsaid && !slices.Contains(w.ready, r) {
		w.ready = append(w.ready, r)
	}
	w.tell()
}

// cosign gets a checkpoint cosigned by a witness.
func (w *Witnesses) cosign(ctx context.Context, m *member, r *round) error {
	w.mu.Lock()
	seen, source := m.seen, w.source
	m.asked = r.Size
	w.mu.Unlock()
	for range 3 { // it may have seen another size, and another auditor may have been faster
		proof, err := w.proof(ctx, source, seen, r)
		if err != nil {
			return err
		}
		cosignature, err := m.Ask(ctx, w.client, r.Note, seen, proof)
		var other *SeenError
		switch {
		case err == nil:
			w.cosigned(m, r, cosignature)
			return nil
		case !errors.As(err, &other):
			return err
		case other.Size > r.Size:
			return w.sawMore(ctx, source, m, r, other.Size)
		case other.Size == seen:
			return fmt.Errorf("it says that it has seen %d records, and does not take the proof from there: it has seen other records, or the key has signed two logs", seen)
		}
		seen = other.Size
		w.mu.Lock()
		m.seen = seen
		w.mu.Unlock()
	}
	return errors.New("it says another size each time")
}

// proof returns the proof that the tree remembers, or makes it from the log.
func (w *Witnesses) proof(ctx context.Context, source Log, seen int64, r *round) (tlog.TreeProof, error) {
	if seen == 0 || seen == r.Size {
		return nil, nil
	}
	if proof, ok := r.Proofs[seen]; ok {
		return proof, nil
	}
	proof, err := source.Prove(ctx, seen, r.Note)
	if err != nil {
		return nil, fmt.Errorf("prove that the log grew from the %d records that it has seen: %w", seen, err)
	}
	return proof, nil
}

// cosigned records a cosignature.
func (w *Witnesses) cosigned(m *member, r *round, c *tree.Cosignature) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.seen = r.Size
	r.lines[m], r.unsaid = c, true
	if len(r.lines) >= w.quorum && !w.since.IsZero() && !r.At.Before(w.since) {
		w.lag(r.after)
	}
}

// ErrCut is the reason if a witness has seen more records than the log has.
var ErrCut = errors.New("a witness has seen more records of this log than it has")

// CutError says which witness, and how many.
type CutError struct {
	Witness   string
	Seen, Has int64
}

func (e *CutError) Error() string {
	return fmt.Sprintf("%v: %s has seen %d, and there are %d", ErrCut, e.Witness, e.Seen, e.Has)
}

func (e *CutError) Unwrap() error { return ErrCut }

// sawMore checks whether the log has as many records as a witness has seen: another auditor may have continued it.
func (w *Witnesses) sawMore(ctx context.Context, source Log, m *member, r *round, seen int64) error {
	has, err := source.Size(ctx)
	if err != nil {
		return err
	}
	if seen > has {
		err := &CutError{m.Key.Name(), seen, has}
		w.mu.Lock()
		w.err = err
		w.tell()
		w.mu.Unlock()
		return err
	}
	return fmt.Errorf("it has seen %d records, more than the %d of this checkpoint: another auditor has gone on with the log", seen, r.Size)
}
