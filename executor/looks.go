package executor

import (
	"context"
	"errors"
	"time"

	"lapse/executor/batch"
)

// looksTogether is how many policies' looks share a round trip at most: few enough that a session's transaction stays short.
const looksTogether = 32

// averageLook is how long each of several looks may take on average before each is made alone, which shows the one that takes long.
const averageLook = 10 * time.Millisecond

// looks makes the looks of policies whose last ones were short and found nothing due, in one round trip. If a look finds
// anything, or fails, its policy gets a turn of its own, from a list that is read after it: no run is opened from an older one, and each
// policy's error is its own.
//
//	crash in it    nothing was opened, and the policies' next turns come sooner than necessary
func (w *worker) looks(ctx context.Context, turns []*turn) {
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	var asked []*turn
	var searches []batch.Search
	for _, t := range turns {
		end, err := w.admit(work, t)
		f, unbuilt := t.memory.programs.looks()
		switch {
		case err != nil || unbuilt != nil:
			w.lookAlone(t)
		case end != turnGoesOn:
			w.scheduler.leave(t, end)
		default:
			asked = append(asked, t)
			searches = append(searches, batch.Search{Policy: t.policy, Functions: f, Quiet: t.memory.quiet.marks(w.now())})
		}
	}
	if len(asked) == 0 {
		return
	}
	began := w.now()
	looks, err := w.session.FindAllDue(work, searches)
	took := w.now().Sub(began)
	if err != nil && !errors.Is(err, batch.ErrFunctionsChanged) { // each meets its own error in a turn of its own, if it is one policy's
		w.log.Info("looks together failed; each policy looks alone", "policies", len(asked), "error", stripped("look", err))
		for _, t := range asked {
			t.memory.quiet.stayApart(w.now())
		}
	}
	var over []*turn
	for i, t := range asked {
		if err != nil || !looks[i].FoundNothing() {
			w.lookAlone(t)
			continue
		}
		t.memory.quiet.add(looks[i].Quiet)
		over = append(over, t)
	}
	long := took > longLook+averageLook*time.Duration(len(asked))
	if err := w.foundNothing(work, took, long, quarantined{}, over...); err != nil {
		w.log.Info("it was not recorded that looks found nothing due; each policy looks alone", "policies", len(over), "error", stripped("record looks", err))
		for _, t := range over {
			t.memory.quiet.stayApart(w.now())
			w.lookAlone(t)
		}
		return
	}
	for _, t := range over {
		t.memory.quiet.share(!long, w.now())
	}
	w.scheduler.looked(over)
}

// lookAlone ends a policy's part in the looks of many: its next turn is its own.
func (w *worker) lookAlone(t *turn) {
	t.memory.quiet.share(false, w.now())
	w.scheduler.leave(t, turnMore)
}
