package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
)

// historyCheck asks whether the database is the one that the log is of. It decides from the topics, from the catalog, and
// from what the slot sends. It writes nothing.
//
//	lastroute.go      which route is in force at the log's end?
//	samelog.go        is the log of this database, with these keys, and in its history?
//	fork.go           up to which position do timelines and heartbeats allow that both are the same?
//	comparison.go     are the transactions that the slot sends the ones that the log has?
//	otherauditor.go   does another auditor write the log?
//	startingpoint.go  where the start goes on, and which markers it writes
type historyCheck struct {
	auditor  *Auditor
	client   *kafka.Client
	stream   *replication.Stream
	identity replication.Identity
	catalog  *catalogState
	route    *evidence.Route
	topics   *topicState
	walk     *walk
	findFork bool // for people: look for the fork when the database is not the log's

	comparison *comparison // nil: the stream has not been read, which can be done once
	result     *CheckResult
	start      *startingPoint
}

// run makes the check. It returns an error if the start must not go on: *bentError, *RefusalError, or what broke.
func (h *historyCheck) run(ctx context.Context) error {
	id, newest := &h.identity, h.catalog.newest()
	h.result = &CheckResult{
		Outcome: OutcomeStraight, Slot: h.stream.StartedAt(), ServerStart: id.ServerStart, Highest: newest.number,
		Database: evidence.Reach{History: newest.number, Timeline: id.Timeline, LSN: id.Flushed},
	}
	h.start = &startingPoint{history: newest}
	if h.topics.origin != nil {
		h.start.origin = h.topics.origin.Reach
	}
	for _, tails := range h.topics.tails {
		for i := range tails {
			h.result.Highest = max(h.result.Highest, tails[i].position.History)
		}
	}
	if h.topics.logEnd == nil {
		h.result.Outcome = OutcomeNew
		return h.beginLog()
	}
	h.result.LogEnd, h.result.Lacking, h.start.replaced = h.topics.logEnd.Reach, h.topics.replaced, h.topics.replaced
	if h.topics.heartbeat != nil {
		h.result.LogHeartbeat = h.topics.heartbeat.Heartbeat.At
	}
	h.result.Highest = max(h.result.Highest, h.topics.logEnd.Reach.History)
	if err := h.checkSource(); err != nil {
		return err
	}
	if accepted, err := h.planAccepted(ctx); accepted || err != nil {
		return err
	}
	return h.checkLog(ctx)
}

// checkLog checks whether the log can be continued from this database.
func (h *historyCheck) checkLog(ctx context.Context) error {
	if why := h.historyMismatch(); why != "" {
		return h.refuseBent(ctx, why)
	}
	common, why, err := h.findCommon(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		return h.refuseBent(ctx, why)
	}
	if slot := h.slot(); h.slotIsRemade() && slot.Below(h.topics.logEnd.Reach) && common == h.topics.logEnd.Reach {
		return h.refuseBent(ctx, fmt.Sprintf("the slot was made at %s, and the log had come to %s by then", slot.LSN, h.topics.logEnd.Reach.LSN))
	}
	if why := h.undecidable(); why != "" {
		return h.refuseBent(ctx, why)
	}
	h.planPromotion(common)
	if err := h.compareStream(ctx); err != nil {
		return err
	}
	if why := h.comparison.difference; why != "" {
		return h.refuseBent(ctx, why)
	}
	h.start.firstMessage, h.start.readBeyond = h.comparison.firstMessage, h.comparison.readBeyond
	if err := h.watchForOther(ctx); err != nil {
		return err
	}
	if r := h.result; len(r.Lacking) > 0 && r.Outcome == OutcomeStraight {
		r.Outcome, r.Why = OutcomeGap, strings.Join(r.Lacking, " and ")+" lacks what was acknowledged in it"
	}
	return h.planSlotGap(common)
}

// compareStream compares the log with what the slot sends.
func (h *historyCheck) compareStream(ctx context.Context) error {
	h.comparison = &comparison{
		stream: h.stream, identity: h.identity, client: h.client, route: h.route, topics: h.topics, walk: h.walk,
		assembler: evidence.NewAssembler(h.route.Source, h.auditor.config.Keys, evidence.Standing{Tables: h.catalog.coveredUpTo(h.start.last.Beat)}),
		router:    evidence.NewRouter(h.route, h.auditor.config.hashKeyOf(h.route)), markers: h.start.markers,
		noHashKey: h.auditor.checkHashKey(h.topics, h.start.reach),
	}
	return h.comparison.run(ctx)
}

// slot is where the slot stands.
func (h *historyCheck) slot() evidence.Reach {
	at := h.stream.StartedAt()
	return evidence.Reach{History: h.start.history.number, Timeline: h.identity.TimelineOf(at), LSN: at}
}

// slotIsRemade reports whether init has made the slot after the log began, and the log does not know it. Nothing below the
// slot's beginning can be compared then. It needs a walk down to the slot.
func (h *historyCheck) slotIsRemade() bool {
	at := h.stream.StartedAt()
	return at == h.catalog.slotStart && at != h.topics.origin.Reach.LSN && (h.walk.before == nil || h.walk.before.Reach.LSN != at)
}

// undecidable says why nobody can know whether the last transactions of the log happened in this database; empty if
// somebody can. It is so if two things come together: the slot begins above the log's end, so that it does not send those
// transactions, and the server was started since the last heartbeat that log and database both have, so that it may be a
// copy that was made before them. On another timeline there is no doubt: what lies below its beginning is the same.
func (h *historyCheck) undecidable() string {
	beat := h.start.last.Beat
	if beat == nil || h.walk.lost == 0 || !h.topics.logEnd.Reach.Below(h.slot()) || h.topics.logEnd.Reach.Timeline != h.identity.Timeline ||
		!h.restartedSince(beat) {
		return ""
	}
	return fmt.Sprintf("the slot begins at %s, above the log's end, and the server was started since the last heartbeat that both have, "+
		"of %s: whether the %d transactions that the log has behind it happened here cannot be told",
		h.slot().LSN, heartbeatTime(beat), h.walk.lost)
}

// restartedSince reports whether the server was started after a heartbeat, or is not the one that the heartbeat was written
// on.
func (h *historyCheck) restartedSince(beat *evidence.Heartbeat) bool {
	return !beat.ServerStart.Equal(h.identity.ServerStart.Truncate(time.Microsecond))
}

// heartbeatTime is a heartbeat's time for a person.
func heartbeatTime(beat *evidence.Heartbeat) string { return beat.At.Format("2006-01-02 15:04:05 UTC") }
