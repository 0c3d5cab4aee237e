package history

import (
	"context"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/replication"
)

// StartingPoint is where a start continues.
type StartingPoint struct {
	History   Row
	Reach     evidence.Reach          // of the log's end
	Begun     evidence.Kind           // of the log's last record; empty for an empty log
	Named     *evidence.Heartbeat     // the last heartbeat, as the next records name it; nil for none
	Last      evidence.LastBeat       // the last heartbeat, as the next one must follow it
	Tables    []evidence.CoveredTable // the tables that were published at that heartbeat
	Unsettled bool                    // see evidence.Standing
	Markers   []evidence.Marker       // markers to write before anything else

	Origin   evidence.Reach // of the log
	Replaced []string       // topics that have lost records: gaps, written with the next heartbeat

	// FirstMessage is the last message that the check read, if it read nothing else above the log's end: the relay begins with it. If the check
	// read more, ReadBeyond is set, and the stream must be opened again.
	FirstMessage *replication.Message
	ReadBeyond   bool
}

// beginLog begins a log at the slot's own beginning, and nowhere else.
func (h *Check) beginLog() error {
	if !h.Topics.empty() {
		return Refuse(ErrLogMissing, "%s is empty, and %s or %s is not",
			"the log was lost or another one is configured: name the topic that has it (topics.log)",
			h.Route.Log.Name, h.Route.System.Name, h.Route.User.Name)
	}
	at, begun := h.Catalog.slotStart, h.Stream.StartedAt()
	if at == 0 {
		return Refuse(ErrLogMissing, "the catalog does not say where slot %s begins", "run lapse init", h.Route.Source.Slot)
	}
	if begun != at {
		return Refuse(ErrLogMissing, "slot %s began at %s and is at %s, and %s is empty",
			"name the topic that has the log (topics.log); if it is lost, so is the record of what was deleted: "+
				anotherLog, h.Route.Source.Slot, at, begun, h.Route.Log.Name)
	}
	// The slot's beginning is on the timeline of that time, which is not the server's if the server was promoted since.
	h.Start.Reach = evidence.Reach{History: h.Start.History.Number, Timeline: h.identity.TimelineOf(at), LSN: at}
	h.Start.Last = evidence.LastBeat{Reach: h.Start.Reach}
	return nil
}

// planAccepted plans the start if a person has accepted that this log continues with this database. It returns false if no person has.
func (h *Check) planAccepted(ctx context.Context) (bool, error) {
	newest, end := h.Start.History, h.Topics.LogEnd
	if newest.Number <= end.Reach.History || newest.logEnd != end.Reach {
		return false, nil
	}
	h.Result.Outcome, h.Result.Fork = OutcomeAccepted, newest.Fork
	h.Start.Begun = end.Kind
	walked, err := walkBack(ctx, h.Client, h.Route, h.Topics, newest.Fork, func(r *evidence.LogRecord) bool {
		return h.hasHeartbeat(r) && !newest.Fork.Below(r.Reach)
	})
	if err != nil {
		return false, err
	}
	h.Start.Last = evidence.LastBeat{Reach: newest.Fork}
	if walked.beat != nil {
		h.Start.Last.Beat = walked.beat.Heartbeat
	}
	h.planRewind(evidence.ReasonAccepted, newest.Fork, newest.at)
	return true, h.planSlotGap(newest.Fork)
}

// planPromotion plans the start at the log's end, with a rewind if the server was promoted without the last transactions of the log.
func (h *Check) planPromotion(common evidence.Reach) {
	end := h.Topics.LogEnd
	h.Start.Reach, h.Start.Begun = h.Topics.complete.Reach, end.Kind
	if common != end.Reach {
		h.Result.Outcome = OutcomePromoted
		h.planRewind(evidence.ReasonTimeline, common, h.Start.Last.Beat.At)
	}
	h.Result.Fork = common
}

// planRewind plans a rewind record at the fork, on the timeline and in the history that continue there. The record's position is the one before the
// fork, at which no WAL record of the server begins: the next commit may be at the fork itself.
func (h *Check) planRewind(reason evidence.Reason, fork evidence.Reach, at time.Time) {
	begin := evidence.Reach{History: h.Start.History.Number, Timeline: h.identity.TimelineOf(fork.LSN), LSN: fork.LSN}
	h.Start.Markers = append(h.Start.Markers, evidence.Marker{
		Op: evidence.Rewind, Reason: reason, Time: at, From: fork, To: h.Topics.LogEnd.Reach,
		At: replication.Position{History: begin.History, Timeline: begin.Timeline, Commit: begin.LSN - 1},
	})
	h.Start.Reach = begin
}

// endsBelow reports whether a log that ends at one reach ends below a slot's. The end of a timeline is the beginning of the next: a log
// that was read up to that position, and a slot that is there after the promotion, are at the same place.
func endsBelow(log, slot evidence.Reach, ancestry replication.Ancestry) bool {
	end, left := ancestry.End(log.Timeline)
	return log.Below(slot) && !(left && log.LSN == end && slot.LSN == end)
}

// planSlotGap plans a gap if the slot begins above the log's end because init has made it again. It refuses a slot that begins there for
// another reason.
//
// The gap's position is the one before the slot's: no WAL record of the server begins there, so no transaction has it.
func (h *Check) planSlotGap(common evidence.Reach) error {
	slot := h.slot()
	if !endsBelow(h.Start.Reach, slot, h.identity.Ancestry) {
		return nil
	}
	if h.Catalog.slotStart != slot.LSN {
		return Refuse(ErrLogBehind, "%s ends at %s, the slot is at %s",
			"the brokers have lost the log's end, or another program has moved or made the slot: drop it (pg_drop_replication_slot), and run "+
				"lapse init --new-slot: the log goes on with a gap", h.Route.Log.Name, common.LSN, slot.LSN)
	}
	if h.Result.Outcome == OutcomeStraight {
		h.Result.Outcome, h.Result.Why = OutcomeGap, "between the log's end and the slot nobody has read"
	}
	h.Start.Markers = append(h.Start.Markers, evidence.Marker{
		Op: evidence.Gap, Reason: evidence.ReasonSlot, Time: h.Catalog.slotMade, From: h.Start.Reach, To: slot,
		At: replication.Position{History: slot.History, Timeline: slot.Timeline, Commit: slot.LSN - 1},
	})
	h.Start.Reach, h.Start.Last.Reach = slot, slot
	if beat := h.Start.Last.Beat; beat != nil {
		unknown := *beat // other heartbeats may have been written before the slot was made
		unknown.Nonce = uuid.UUID{}
		h.Start.Named, h.Start.Last.Beat = beat, &unknown
	}
	return nil
}
