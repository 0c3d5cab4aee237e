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

// The transactions of batches count in their shards what a run did: see 0001_09_runs.sql. So the counts are right however the run ends, and
// cover all executors. This file ends runs, and reads their counts.
//
//	crash before a run is closed    the next process closes it, without a count of what is left

// Statistics are what a run did so far, by all executors.
type Statistics struct {
	// Due is how many rows were due at the cutoff; nil if they were not counted.
	Due      *int64 `json:"due,omitempty"`
	Deleted  int64  `json:"deleted"`
	Cascaded int64  `json:"cascaded"`
	Batches  int64  `json:"batches"`
	// Refreshed rows were found due and not deleted: somebody changed them meanwhile, or a trigger kept them.
	Refreshed   int64 `json:"refreshed"`
	SteppedOver int64 `json:"stepped_over"` // they resisted
	// DroppedPartitions were dropped whole. Deleted includes their rows.
	DroppedPartitions int64 `json:"dropped_partitions"`
	// What was left at the end, nil if it was not counted. LeftResting rows are in quarantine; LeftDue includes them.
	LeftDue     *int64 `json:"left_due,omitempty"`
	LeftHeld    *int64 `json:"left_held,omitempty"`
	LeftResting *int64 `json:"left_resting,omitempty"`
	// Watermark: nothing that fell due before is left, except held rows; nil if not known.
	Watermark *time.Time `json:"watermark,omitempty"`
	Seconds   float64    `json:"seconds"` // from the opening of the run
}

// statisticsOf reads what a run did so far. An unknown run did nothing.
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

// closeRun ends a run. Only the first call counts. Durable when it returns.
func closeRun(ctx context.Context, conn *pgx.Conn, run uuid.UUID, r remains) error {
	var nothing any
	if err := conn.QueryRow(ctx, `select lapse.close_run($1, $2, $3, $4, $5)`, run, r.due, r.held, r.quarantined, r.oldest).Scan(&nothing); err != nil {
		return fmt.Errorf("end run %v: %w", run, err)
	}
	return nil
}

// closeRun records that the turn's run is over, with what is left. If anything may be left, it counts it.
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

// remaining counts what a run left. If the count fails, or meets another session's lock, the counts stay unknown, and the run ends
// without them.
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

// stoppedByRequest is why a run is suspended when its executor is asked to stop. Guards and errors give the other reasons.
const stoppedByRequest = "stop request"

// noteSuspension records the result of a worker's part in a turn: what it did, and why its run is suspended, if it is not over. Only people
// read the record, so an error is only logged.
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

// askWhatItDid reads, and keeps, what the turn's run did so far.
func (w *worker) askWhatItDid(ctx context.Context, t *turn) error {
	st, err := statisticsOf(ctx, w.session.Control, t.begun().ID)
	if err == nil {
		t.memory.run.change(func(r *runFacts) { r.whole = st })
	}
	return err
}

// ended logs how a run ended that this process worked on but did not end: the policy changed, or another executor ended the run.
func (w *worker) ended(ctx context.Context, policy schemas.PolicyName, did *runCounts) {
	how := cutShort
	err := w.session.Control.QueryRow(ctx, `select coalesce(r.outcome, $2) from lapse.run r where r.run = $1`, did.run, cutShort).Scan(&how)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		how = "not known"
	}
	w.log.Info("run is over", "policy", policy, "run", did.run, "outcome", how, "deleted", did.deleted, "cascaded", did.cascaded, "batches", did.batches,
		"seconds", w.now().Sub(did.began).Seconds())
}

// cutShort is how a run ends if its policy is changed or dropped.
const cutShort = "cut short"

// because returns the reason of an error for the catalog: its cause, and no text of a server's.
func because(err error) string { return "stopped: " + string(CauseOf(err)) }

// noteDue records how much was due when the turn's run was opened, if that was counted.
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
