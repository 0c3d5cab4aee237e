package audit

import (
	"context"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/replication"
)

// startingPoint is where a start goes on.
type startingPoint struct {
	history historyRow
	reach   evidence.Reach          // of the log's end
	begun   evidence.Kind           // of the log's last record; empty for an empty log
	named   *evidence.Heartbeat     // the last heartbeat, as the next records name it; nil for none
	last    evidence.LastBeat       // the last heartbeat, as the next one must follow it
	tables  []evidence.CoveredTable // that were published at that heartbeat
	markers []evidence.Marker       // to be written before anything else

	origin   evidence.Reach // of the log
	replaced []string       // topics that have lost what was in them: gaps, written with the next heartbeat

	// firstMessage is the last message that the check read, if it read nothing else above the log's end: the relay begins
	// with it. If the check read more, readBeyond is set, and the stream must be opened again.
	firstMessage *replication.Message
	readBeyond   bool
}

// beginLog begins a log at the slot's own beginning, and nowhere else.
func (h *historyCheck) beginLog() error {
	if !h.topics.empty() {
		return refusal(errLogMissing, "%s is empty, and %s or %s is not",
			"the log was lost or another one is configured: name the topic that has it (topics.log)",
			h.route.Log.Name, h.route.System.Name, h.route.User.Name)
	}
	at, begun := h.catalog.slotStart, h.stream.StartedAt()
	if at == 0 {
		return refusal(errLogMissing, "the catalog does not say where slot %s begins", "run lapse init", h.route.Source.Slot)
	}
	if begun != at {
		return refusal(errLogMissing, "slot %s began at %s and stands at %s, and %s is empty",
			"name the topic that has the log (topics.log); if it is lost, so is the record of what was deleted: "+
				anotherLog, h.route.Source.Slot, at, begun, h.route.Log.Name)
	}
	// The slot's beginning lies on its own timeline, which is not the server's if the server was promoted since.
	h.start.reach = evidence.Reach{History: h.start.history.number, Timeline: h.identity.TimelineOf(at), LSN: at}
	h.start.last = evidence.LastBeat{Reach: h.start.reach}
	return nil
}

// planAccepted plans the start after a person has said that this log goes on with this database. It reports whether
// somebody has.
func (h *historyCheck) planAccepted(ctx context.Context) (bool, error) {
	newest, end := h.start.history, h.topics.logEnd
	if newest.number <= end.Reach.History || newest.logEnd != end.Reach {
		return false, nil
	}
	h.result.Outcome, h.result.Fork = OutcomeAccepted, newest.fork
	h.start.begun = end.Kind
	walked, err := walkBack(ctx, h.client, h.route, h.topics, newest.fork, func(r *evidence.LogRecord) bool {
		return h.hasHeartbeat(r) && !newest.fork.Below(r.Reach)
	})
	if err != nil {
		return false, err
	}
	h.start.last = evidence.LastBeat{Reach: newest.fork}
	if walked.beat != nil {
		h.start.last.Beat = walked.beat.Heartbeat
	}
	h.planRewind(evidence.ReasonAccepted, newest.fork, newest.at)
	return true, h.planSlotGap(newest.fork)
}

// planPromotion plans the start at the log's end, with a rewind if the server was promoted without what the log has last.
func (h *historyCheck) planPromotion(common evidence.Reach) {
	end := h.topics.logEnd
	h.start.reach, h.start.begun = h.topics.complete.Reach, end.Kind
	if common != end.Reach {
		h.result.Outcome = OutcomePromoted
		h.planRewind(evidence.ReasonTimeline, common, h.start.last.Beat.At)
	}
	h.result.Fork = common
}

// planRewind plans a rewind record at the fork, on the timeline and in the history that go on there. The record's position
// is the one before the fork, where no WAL record of the server begins: the next commit may stand at the fork itself.
func (h *historyCheck) planRewind(reason evidence.Reason, fork evidence.Reach, at time.Time) {
	begin := evidence.Reach{History: h.start.history.number, Timeline: h.identity.TimelineOf(fork.LSN), LSN: fork.LSN}
	h.start.markers = append(h.start.markers, evidence.Marker{
		Op: evidence.Rewind, Reason: reason, Time: at, From: fork, To: h.topics.logEnd.Reach,
		At: replication.Position{History: begin.History, Timeline: begin.Timeline, Commit: begin.LSN - 1},
	})
	h.start.reach = begin
}

// endsBelow reports whether a log that ends at one reach ends below a slot's. Where a timeline ends the next one begins: a log
// that was read to that very place, and a slot that stands there after the promotion, differ in nothing.
func endsBelow(log, slot evidence.Reach, ancestry replication.Ancestry) bool {
	end, left := ancestry.End(log.Timeline)
	return log.Below(slot) && !(left && log.LSN == end && slot.LSN == end)
}

// planSlotGap plans a gap if the slot begins above the log's end because init has made it again. It refuses a slot that
// stands there for another reason.
//
// The gap's position is the one before the slot's: no WAL record of the server begins there, so no transaction has it.
func (h *historyCheck) planSlotGap(common evidence.Reach) error {
	slot := h.slot()
	if !endsBelow(h.start.reach, slot, h.identity.Ancestry) {
		return nil
	}
	if h.catalog.slotStart != slot.LSN {
		return refusal(errLogBehind, "%s ends at %s, the slot stands at %s",
			"the brokers have lost the log's end, or somebody else has moved or made the slot: drop it (pg_drop_replication_slot), and run "+
				"lapse init --new-slot: the log goes on with a gap", h.route.Log.Name, common.LSN, slot.LSN)
	}
	if h.result.Outcome == OutcomeStraight {
		h.result.Outcome, h.result.Why = OutcomeGap, "between the log's end and the slot nobody has read"
	}
	h.start.markers = append(h.start.markers, evidence.Marker{
		Op: evidence.Gap, Reason: evidence.ReasonSlot, Time: h.catalog.slotMade, From: h.start.reach, To: slot,
		At: replication.Position{History: slot.History, Timeline: slot.Timeline, Commit: slot.LSN - 1},
	})
	h.start.reach, h.start.last.Reach = slot, slot
	if beat := h.start.last.Beat; beat != nil {
		unknown := *beat // other heartbeats may have been written before the slot was made
		unknown.Nonce = uuid.UUID{}
		h.start.named, h.start.last.Beat = beat, &unknown
	}
	return nil
}
