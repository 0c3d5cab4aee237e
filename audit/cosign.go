package audit

import (
	"context"
	"errors"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/tree"
	"lapse/audit/witness"
	"lapse/replication"
)

// showing tracks the log's checkpoints on their way to witnesses and anchors, and back. The zero value shows them to none.
//
//	crash before a witness has answered        it has seen the checkpoint, and the next start learns so from it
//	crash before the cosignatures are in the   they are lost. The next start has the newest checkpoint cosigned at once
//	 log
type showing struct {
	to      *witness.Witnesses // nil: none
	next    *witness.Submission
	mark    uint64    // of its record: the checkpoint is sent once the log has it
	taken   []byte    // a cosigned checkpoint that is not appended yet, because the sink is full
	until   time.Time // until when the end of the run waits; zero: the run is not ending
	unwatch func()
}

// signed records a checkpoint that the sink has.
func (s *showing) signed(note []byte, size int64, proofs tree.Proofs, at time.Time, mark uint64) {
	if s.to != nil {
		s.next, s.mark = &witness.Submission{Note: note, Size: size, At: at, Proofs: proofs}, mark
	}
}

// wants reports whether a proof from this size may be asked for.
func (s *showing) wants(size int64) bool { return s.to != nil && s.to.Wants(size) }

// show sends a checkpoint that the log has to the witnesses, and appends what they have cosigned. It waits for neither.
func (r *relay) show(acked uint64) error {
	s := &r.showing
	if s.to == nil {
		return nil
	}
	if err := s.to.Err(); err != nil {
		return history.RefuseCut(err)
	}
	if s.next != nil && s.mark <= acked {
		s.to.Submit(s.next)
		s.next = nil
	}
	for {
		if s.taken == nil {
			if s.taken = s.to.Take(); s.taken == nil {
				return nil
			}
		}
		value, err := r.checkpoints.tree.Cosigned(s.taken)
		if err != nil {
			return err
		}
		mark, ok := r.appendFence(value)
		if !ok {
			return nil // full: the next acknowledgement wakes the stream
		}
		r.lastMark, s.taken = mark, nil
	}
}

// shown reports whether every witness and anchor has the newest checkpoint, and the log their answers; or whether patience has passed since it was
// first called. It must not keep a run from ending.
func (r *relay) shown(patience time.Duration) bool {
	s := &r.showing
	switch {
	case s.to == nil:
		return true
	case s.to.Err() != nil:
		return false // the next flush decides
	case s.next == nil && s.taken == nil && s.to.Settled():
		return true
	}
	if s.until.IsZero() && r.stream != nil {
		s.until = r.now().Add(patience)
		time.AfterFunc(patience, r.stream.Wake)
	}
	return !r.now().Before(s.until)
}

// How long the end of a run waits for witnesses: of one that was asked to end, and of one up to the present end.
const (
	showTimeout     = 2 * time.Second
	showOnceTimeout = 10 * time.Second
)

// attach lets the witnesses' answers wake the stream.
func (s *showing) attach(stream *replication.Stream) {
	s.unwatch = func() {}
	if s.to != nil {
		s.unwatch = wakeOn(stream, s.to.Progress())
	}
}

// startWitnesses starts the configured witnesses, and queries them until stop.
func (a *Auditor) startWitnesses(ctx context.Context) (stop func()) {
	c := &a.config
	if len(c.Witnesses)+len(c.Anchors) == 0 {
		return func() {}
	}
	a.witnesses = witness.New(c.Witnesses, c.Quorum, c.Anchors, a.metrics.witness, a.log)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // they are queried for the last time when the run ends
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.witnesses.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// showLog starts the witnesses on the log of this session. They get its newest checkpoint at once, and one that has seen more says so.
func (s *session) showLog(logTree *tree.Reader) {
	a := s.auditor
	if a.witnesses == nil {
		return
	}
	a.witnesses.Begin(&logBack{auditor: a, route: s.route})
	s.relay.showing.to = a.witnesses
	if logTree.Note != nil {
		s.relay.showing.signed(logTree.Note, logTree.Signed, nil, s.relay.now(), 0)
	}
}

// logBack reads the log back, for witnesses that have seen a size that the tree does not remember.
type logBack struct {
	auditor *Auditor
	route   *evidence.Route
}

func (l *logBack) read(ctx context.Context, from, to int64) (*tree.Tree, error) {
	a := l.auditor
	key, err := a.config.treeKey(&l.route.Source) // a key of its own: the auditor's must not be shared
	if err != nil {
		return nil, err
	}
	client, err := a.newClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return history.ReadGrown(ctx, client, key, l.route, from, to)
}

// Size is how many leaves the log has.
func (l *logBack) Size(ctx context.Context) (int64, error) {
	t, err := l.read(ctx, history.End, history.End)
	if err != nil {
		return 0, err
	}
	return t.Size(), nil
}

// Prove makes a proof from the log's records.
func (l *logBack) Prove(ctx context.Context, from int64, signed []byte) (tlog.TreeProof, error) {
	of, err := tree.Peek(signed)
	if err != nil {
		return nil, err
	}
	t, err := l.read(ctx, from, of.Size)
	if err != nil {
		return nil, err
	}
	taken, err := t.Snapshot()
	if err != nil {
		return nil, err
	}
	proof, ok := taken.Proofs[from]
	if !ok || taken.Size() != of.Size || taken.Root() != of.Root {
		return nil, errors.New("the log's records are not those that the checkpoint signs")
	}
	return proof, nil
}
