package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// What a run did is counted in its shards, by the transactions of its batches: see 0001_09_runs.sql. So it is true however the run
// ends, and of all executors together. Here it is ended, and asked for.
//
//	crash before a run is closed    the next one closes it; what is left of it was not counted

// Statistics are what a run did so far, by all executors.
type Statistics struct {
	// Due is how many rows were due at the cutoff; nil where nobody counted.
	Due      *int64 `json:"due,omitempty"`
	Deleted  int64  `json:"deleted"`
	Cascaded int64  `json:"cascaded"`
	Batches  int64  `json:"batches"`
	// Refreshed rows were found due and stayed: somebody changed them meanwhile, or a trigger kept them.
	Refreshed   int64 `json:"refreshed"`
	SteppedOver int64 `json:"stepped_over"` // they resisted
	// DroppedPartitions were dropped whole. Their rows are among those deleted.
	DroppedPartitions int64 `json:"dropped_partitions"`
	// What was left at the end, nil where nobody counted. LeftResting are in quarantine, and among LeftDue.
	LeftDue     *int64 `json:"left_due,omitempty"`
	LeftHeld    *int64 `json:"left_held,omitempty"`
	LeftResting *int64 `json:"left_resting,omitempty"`
	// Watermark says that nothing that fell due before is left, but for held rows; nil where that is not known.
	Watermark *time.Time `json:"watermark,omitempty"`
	Seconds   float64    `json:"seconds"` // from the opening of the run
}

// statisticsOf asks what a run did so far. An unknown run did nothing.
func statisticsOf(ctx context.Context, conn *pgx.Conn, run uuid.UUID) (st Statistics, err error) {
	err = conn.QueryRow(ctx, `
		select r.due, t.deleted, t.cascaded, t.batches, t.refreshed, t.stepped_over, r.dropped_partitions, r.left_due, r.left_held, r.left_resting, r.watermark,
		       greatest(0, extract(epoch from coalesce(r.ended_at, clock_timestamp()) - r.started_at))::float8
		  from lapse.run r, lapse.statistics(r.run) t
		 where r.run = $1`, run).Scan(&st.Due, &st.Deleted, &st.Cascaded, &st.Batches, &st.Refreshed, &st.SteppedOver, &st.DroppedPartitions, &st.LeftDue, &st.LeftHeld,
		&st.LeftResting, &st.Watermark, &st.Seconds)
	if err != nil {
		return st, fmt.Errorf("ask what run %v did: %w", run, err)
	}
	return st, nil
}

// remains is what is left at the end of a run; nil counts are not known.
type remains struct {
	due, held, quarantined *int64
	oldest                 *time.Time
}

// closeRun ends a run that is over. The first to say so counts. Durable when it returns.
func closeRun(ctx context.Context, conn *pgx.Conn, run uuid.UUID, r remains) error {
	var nothing any
	if err := conn.QueryRow(ctx, `select lapse.close_run($1, $2, $3, $4, $5)`, run, r.due, r.held, r.quarantined, r.oldest).Scan(&nothing); err != nil {
		return fmt.Errorf("end run %v: %w", run, err)
	}
	return nil
}

// closeRun records that the turn's run is over, with what is left. Where something is known to be left it is counted.
func (w *worker) closeRun(ctx context.Context, t *turn, left *runState, rest quarantined) error {
	p, run := t.policy, t.begun()
	none := int64(0)
	r := remains{due: &none}
	whole, err := statisticsOf(ctx, w.session.Control, run.ID)
	if err != nil {
		return err
	}
	// Refreshed rows may be due as they were: a trigger kept them.
	if left.lockedRows || left.aside > 0 || rest.rows > 0 || whole.Refreshed > 0 || p.HoldVersion > 0 {
		r = w.remaining(ctx, p, run)
	}
	r.quarantined = &rest.rows
	return closeRun(ctx, w.session.Control, run.ID, r)
}

// remaining counts what a run left. What cannot be counted, or was in somebody's way, is not known, and no reason to fail: the rows
// themselves were seen to.
func (w *worker) remaining(ctx context.Context, p *record.InForce, run *record.Run) (r remains) {
	err := w.compareSurvey(ctx, p)
	if err == nil {
		var found survey.Remains
		if found, err = survey.Remaining(ctx, w.session.Batches, w.session.Control, p, run.Cutoff); err == nil && found.Exact {
			return remains{due: &found.Due, held: &found.Held, oldest: found.Oldest}
		}
	}
	if err != nil {
		w.log.Info("the rows that the run left are not counted", "policy", p.Name, "run", run.ID, "error", stripped("count", err))
	}
	return remains{}
}

// stoppedByRequest is why a run is suspended when its executor is asked to stop. The other reasons are those of guards and errors.
const stoppedByRequest = "stop request"

// noteSuspension records what a worker's part in a turn came to: why its run is suspended, if it is not over, and what it did. Only
// people read it: where it cannot be recorded, nothing else changes.
func (w *worker) noteSuspension(ctx, work context.Context, t *turn, end turnEnd) {
	run := t.begun()
	var why string
	switch {
	case run == nil || w.session.Mute() || end == turnFinished:
		return
	case end == turnStopped:
		why = because(t.memory.pauses.now().stopped)
	case end == turnRefused || end == turnLimited:
		why = t.heldBy()
	case ctx.Err() != nil:
		why = stoppedByRequest
	default:
		return
	}
	work, cancel := lastWords(work)
	defer cancel()
	var nothing any
	err := w.session.Control.QueryRow(work, `select lapse.suspend_run($1, $2)`, run.ID, why).Scan(&nothing)
	if err == nil {
		err = w.askWhatItDid(work, t)
	}
	if err != nil {
		w.log.Warn("why a run is suspended is not on record", "policy", t.policy.Name, "run", run.ID, "error", stripped("suspend the run", err))
	}
}

// askWhatItDid keeps what the turn's run did so far.
func (w *worker) askWhatItDid(ctx context.Context, t *turn) error {
	st, err := statisticsOf(ctx, w.session.Control, t.begun().ID)
	if err == nil {
		t.memory.run.change(func(r *runFacts) { r.whole = st })
	}
	return err
}

// ended says how a run ended that this process worked on, and did not end: a change of the policy cut it short, or another executor ended it.
func (w *worker) ended(ctx context.Context, policy schemas.PolicyName, did *runCounts) {
	how := cutShort
	err := w.session.Control.QueryRow(ctx, `select coalesce(r.outcome, $2) from lapse.run r where r.run = $1`, did.run, cutShort).Scan(&how)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		how = "not known"
	}
	w.log.Info("run is over", "policy", policy, "run", did.run, "outcome", how, "deleted", did.deleted, "cascaded", did.cascaded, "batches", did.batches,
		"seconds", w.now().Sub(did.began).Seconds())
}

// cutShort is how a run ends whose policy has another version, or is dropped.
const cutShort = "cut short"

// because is the reason of an error, for the catalog: its SQLSTATE, and no text of a server's.
func because(err error) string { return "stopped: " + string(CauseOf(err)) }

// noteDue records how much was due when the turn's run was opened, where somebody counted.
func (w *worker) noteDue(ctx context.Context, t *turn) error {
	run := t.begun()
	if t.due == nil || run.Resumed {
		return nil
	}
	var nothing any
	if err := w.session.Control.QueryRow(ctx, `select lapse.note_due($1, $2)`, run.ID, *t.due).Scan(&nothing); err != nil {
		return fmt.Errorf("record what is due: %w", err)
	}
	return nil
}
