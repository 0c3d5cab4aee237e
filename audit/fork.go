package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// findCommon finds the last position that log and database may have in common, by timelines and heartbeats alone. It sets
// the walk and the last heartbeat. why says what forbids to go on from that position; empty if nothing does.
func (h *historyCheck) findCommon(ctx context.Context) (common evidence.Reach, why string, err error) {
	end, id := h.topics.logEnd, &h.identity
	if common, why = h.commonByTimeline(); why != "" {
		return common, why, nil
	}
	if h.walk, err = walkBack(ctx, h.client, h.route, h.topics, h.slot(), h.heartbeatUpTo(common)); err != nil {
		return common, "", err
	}
	beat := h.walk.beat
	h.start.last = evidence.LastBeat{Reach: h.topics.origin.Reach}
	if beat == nil { // a log without heartbeats says nothing of how much was lost
		if common != end.Reach {
			why = fmt.Sprintf("the log reaches %s, and the server left that timeline at %s", end.Reach.LSN, common.LSN)
		}
		return common, why, nil
	}
	h.start.last = evidence.LastBeat{Beat: beat.Heartbeat, Reach: beat.Reach}
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

// commonByTimeline is the log's end, or the position at which the server left the timeline of the log's end. why says that
// the server cannot have been there; empty if it can.
func (h *historyCheck) commonByTimeline() (common evidence.Reach, why string) {
	end, id := h.topics.logEnd.Reach, &h.identity
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
func (h *historyCheck) hasHeartbeat(r *evidence.LogRecord) bool {
	_, there := h.catalog.heartbeats[r.Heartbeat.Nonce]
	return there
}

// heartbeatUpTo selects heartbeats at or below the common position, for walkBack. It leaves out the one of a transaction
// whose records are not all there: the slot sends that transaction again, and the next heartbeat must follow the selected
// one.
func (h *historyCheck) heartbeatUpTo(common evidence.Reach) func(*evidence.LogRecord) bool {
	if h.topics.logEnd.Beat == (uuid.UUID{}) {
		return nil
	}
	return func(r *evidence.LogRecord) bool { return !common.Below(r.Reach) && !h.topics.isPartial(r) }
}

// excessiveLoss says that a promotion lost more than it may without a person's word; empty if it did not.
func (h *historyCheck) excessiveLoss(common evidence.Reach) string {
	if common == h.topics.logEnd.Reach {
		return ""
	}
	until := h.topics.heartbeat.Heartbeat.At
	if h.topics.logEnd.Time.After(until) { // heartbeats may have failed
		until = h.topics.logEnd.Time
	}
	lost := until.Sub(h.start.last.Beat.At)
	if lost <= h.auditor.config.FailoverTolerance {
		return ""
	}
	return fmt.Sprintf("the server left timeline %d at %s, and the log goes on for %s after that: more than failover_tolerance, which is %s",
		common.Timeline, common.LSN, lost.Round(time.Second), h.auditor.config.FailoverTolerance)
}

// refuseBent ends the check of a database that is not the log's. For people it finds the fork, and counts what is lost.
func (h *historyCheck) refuseBent(ctx context.Context, why string) error {
	r := h.result
	r.Outcome, r.Why = OutcomeBent, why
	if !h.findFork {
		return &bentError{r}
	}
	there := func(r *evidence.LogRecord) bool { return h.hasHeartbeat(r) && !h.topics.isPartial(r) }
	var err error
	if h.walk, err = walkBack(ctx, h.client, h.route, h.topics, h.slot(), there); err != nil {
		return err
	}
	if h.comparison == nil && !h.slotIsRemade() && !h.topics.logEnd.Reach.Below(h.slot()) {
		if err := h.compareStream(ctx); err != nil && !errors.Is(err, errForeignTail) {
			return err
		}
	}
	switch {
	case h.comparison != nil:
		r.Fork = h.comparison.lastMatch
	case h.walk.beat != nil: // the slot is younger than the log's end: nothing can be compared but heartbeats
		r.Fork = h.walk.beat.Reach
	default:
		r.Fork = h.topics.origin.Reach
	}
	if err := h.countLost(ctx); err != nil {
		return err
	}
	return &bentError{r}
}

// countLost counts what the log has above the fork.
func (h *historyCheck) countLost(ctx context.Context) error {
	r, w := h.result, &walk{}
	r.LostEvents = map[string]uint64{}
	return h.client.Backward(ctx, h.route.Log.Name, 0, h.topics.logEndOffset+1, func(rec *schemas.Record, offset int64) (bool, error) {
		record, err := logRecordOf(rec, h.route)
		if err != nil || record == nil || w.dead(offset, record) {
			return err == nil, err
		}
		if record.Kind == evidence.KindRewind {
			w.rewinds = append(w.rewinds, rewound{offset: offset, fork: record.From})
		}
		if !r.Fork.Below(record.Reach) {
			return false, nil
		}
		if record.Kind == evidence.KindTransaction {
			r.LostTransactions++
			for cause, n := range record.Events {
				r.LostEvents[cause] += n
			}
		}
		if record.Heartbeat != nil {
			r.LostHeartbeats++
		}
		return true, nil
	})
}
