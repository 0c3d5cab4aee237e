package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// findCommon finds the last position that log and database may have in common, by timelines and heartbeats alone. It sets the walk and the last
// heartbeat. why says why the start must not continue from that position; empty if it may.
func (h *Check) findCommon(ctx context.Context) (common evidence.Reach, why string, err error) {
	end, id := h.Topics.LogEnd, &h.identity
	if common, why = h.commonByTimeline(); why != "" {
		return common, why, nil
	}
	if h.walk, err = walkBack(ctx, h.Client, h.Route, h.Topics, h.slot(), h.heartbeatUpTo(common)); err != nil {
		return common, "", err
	}
	beat := h.walk.beat
	h.Start.Last = evidence.LastBeat{Reach: h.Topics.origin.Reach}
	if beat == nil { // a log without heartbeats does not show how much was lost
		if common != end.Reach {
			why = fmt.Sprintf("the log reaches %s, and the server left that timeline at %s", end.Reach.LSN, common.LSN)
		}
		return common, why, nil
	}
	h.Start.Last = evidence.LastBeat{Beat: beat.Heartbeat, Reach: beat.Reach}
	if !h.hasHeartbeat(beat) {
		return common, fmt.Sprintf("the heartbeat of %s, which the log has at %s, is not in the database",
			heartbeatTime(beat.Heartbeat), beat.Reach.LSN), nil
	}
	for _, was := range beat.Ancestry {
		if at, found := id.Ancestry.End(was.Timeline); !found || at != was.At {
			return common, fmt.Sprintf("the log's server left timeline %d at %s, and this one did not", was.Timeline, was.At), nil
		}
	}
	return common, h.excessiveLoss(common), nil
}

// commonByTimeline returns the log's end, or the position at which the server left the timeline of the log's end. why says why the server cannot have
// been there; empty if it can.
func (h *Check) commonByTimeline() (common evidence.Reach, why string) {
	end, id := h.Topics.LogEnd.Reach, &h.identity
	left, ended := id.Ancestry.End(end.Timeline)
	switch {
	case end.Timeline == id.Timeline && end.LSN > id.Flushed:
		return end, fmt.Sprintf("the log reaches %s, and the server has written no more than %s", end.LSN, id.Flushed)
	case end.Timeline == id.Timeline:
		return end, ""
	case !ended:
		return end, fmt.Sprintf("the log is on timeline %d, which the server, on timeline %d, never was on", end.Timeline, id.Timeline)
	}
	common = end
	common.LSN = min(end.LSN, left)
	return common, ""
}

// hasHeartbeat reports whether the database has the heartbeat of a record.
func (h *Check) hasHeartbeat(r *evidence.LogRecord) bool {
	_, there := h.Catalog.heartbeats[r.Heartbeat.Nonce]
	return there
}

// heartbeatUpTo selects heartbeats at or below the common position, for walkBack. It leaves out the heartbeat of a transaction whose records are
// incomplete: the slot sends that transaction again, and the next heartbeat must follow the selected one.
func (h *Check) heartbeatUpTo(common evidence.Reach) func(*evidence.LogRecord) bool {
	if h.Topics.LogEnd.Beat == (uuid.UUID{}) {
		return nil
	}
	return func(r *evidence.LogRecord) bool { return !common.Below(r.Reach) && !h.Topics.isPartial(r) }
}

// excessiveLoss says that a promotion lost more than it may without a person's decision; empty if it did not.
func (h *Check) excessiveLoss(common evidence.Reach) string {
	if common == h.Topics.LogEnd.Reach {
		return ""
	}
	until := h.Topics.heartbeat.Heartbeat.At
	if h.Topics.LogEnd.Time.After(until) { // heartbeats may have failed
		until = h.Topics.LogEnd.Time
	}
	lost := until.Sub(h.Start.Last.Beat.At)
	if lost <= h.FailoverTolerance {
		return ""
	}
	return fmt.Sprintf("the server left timeline %d at %s, and the log goes on for %s after that: more than failover_tolerance, which is %s",
		common.Timeline, common.LSN, lost.Round(time.Second), max(h.FailoverTolerance, 0))
}

// refuseBent ends the check of a database that the log does not belong to. For people it finds the fork, and counts what is lost.
func (h *Check) refuseBent(ctx context.Context, why string) error {
	r := h.Result
	r.Outcome, r.Why = OutcomeBent, why
	if !h.FindFork {
		return &BentError{r}
	}
	there := func(r *evidence.LogRecord) bool { return h.hasHeartbeat(r) && !h.Topics.isPartial(r) }
	var err error
	if h.walk, err = walkBack(ctx, h.Client, h.Route, h.Topics, h.slot(), there); err != nil {
		return err
	}
	if h.comparison == nil && !h.slotIsRemade() && !h.Topics.LogEnd.Reach.Below(h.slot()) {
		if err := h.compareStream(ctx); err != nil && !errors.Is(err, ErrForeignTail) {
			return err
		}
	}
	switch {
	case h.comparison != nil:
		r.Fork = h.comparison.lastMatch
	case h.walk.beat != nil: // the slot is younger than the log's end: only heartbeats can be compared
		r.Fork = h.walk.beat.Reach
	default:
		r.Fork = h.Topics.origin.Reach
	}
	if err := h.countLost(ctx); err != nil {
		return err
	}
	return &BentError{r}
}

// countLost counts what the log has above the fork.
func (h *Check) countLost(ctx context.Context) error {
	r, w := h.Result, &walk{}
	r.LostEvents = map[string]uint64{}
	return h.Client.Backward(ctx, h.Route.Log.Name, 0, h.Topics.logEndOffset+1, func(rec *schemas.Record, offset int64) (bool, error) {
		record, err := logRecordOf(rec, h.Route)
		if err != nil || record == nil || w.dead(offset, record) {
			return err == nil, err
		}
		w.note(offset, record)
		if !r.Fork.Below(record.Reach) {
			return false, nil
		}
		if tx, is := record.Content.(*evidence.TransactionContent); is {
			r.LostTransactions++
			for cause, n := range tx.Events() {
				r.LostEvents[cause] += n
			}
		}
		if record.Heartbeat != nil {
			r.LostHeartbeats++
		}
		return true, nil
	})
}
