package executor

import (
	"context"
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
	var over []*turn
	for i, t := range asked {
		if err != nil || !looks[i].FoundNothing() {
			w.lookAlone(t)
			continue
		}
		t.memory.quiet.add(looks[i].Quiet)
		over = append(over, t)
	}
	if err = w.foundNothing(work, took, quarantined{}, over...); err != nil || took > longLook+averageLook*time.Duration(len(asked)) {
		for _, t := range over {
			t.memory.quiet.share(false)
		}
	}
	w.scheduler.looked(over)
}

// lookAlone ends a policy's part in the looks of many: its next turn is its own.
func (w *worker) lookAlone(t *turn) {
	t.memory.quiet.share(false)
	w.scheduler.leave(t, turnMore)
}
