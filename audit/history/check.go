package history

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/replication"
	"lapse/schemas"
)

// Check checks whether the log belongs to the database. It decides from the topics, from the catalog, and from what the slot sends. It writes
// nothing.
type Check struct {
	Client  store.Client
	Stream  *replication.Stream
	Catalog *Catalog
	Route   *evidence.Route // the configuration's; after the check, the one in force

	Keys              []schemas.Key // the tag keys under which a claim verifies
	HashKeys          HashKeys
	FailoverTolerance time.Duration // how much a promotion may lose without a person's decision
	HeartbeatEvery    time.Duration
	Process           string           // this process, as its fences name it
	Waits             func(why string) // called with what the check waits for
	Logger            *slog.Logger
	FindFork          bool // for people: find the fork if the log does not belong to the database

	// What the check found, as far as it got.
	Topics *Topics
	Result *Result
	Start  *StartingPoint

	identity   replication.Identity
	walk       *walk
	comparison *comparison // nil: the stream has not been read; it can be read once
}

// Run reads the topics and makes the check. It returns an error if the start must not continue: *BentError, *RefusalError, or a failure.
func (h *Check) Run(ctx context.Context) error {
	h.identity = h.Stream.Identity()
	h.Waits("reading the topics")
	err := h.Stream.During(ctx, func(ctx context.Context) (err error) {
		h.Topics, err = readTopics(ctx, h.Client, h.Route, h.Catalog.slotStart == h.Stream.StartedAt())
		return err
	})
	if err != nil {
		return err
	}
	h.Route = h.Topics.route
	h.Waits("comparing the log with the database")
	if err := h.compare(ctx); err != nil {
		return err
	}
	h.Start.Tables = h.Catalog.coveredUpTo(h.Start.Last.Beat)
	h.Start.Unsettled = h.walk == nil || h.walk.settling != evidence.Settled || len(h.Start.Markers) > 0
	return nil
}

// compare compares the log with the database.
func (h *Check) compare(ctx context.Context) error {
	id, newest := &h.identity, h.Catalog.Newest()
	h.Result = &Result{
		Outcome: OutcomeStraight, Slot: h.Stream.StartedAt(), ServerStart: id.ServerStart, Highest: newest.Number,
		Database: evidence.Reach{History: newest.Number, Timeline: id.Timeline, LSN: id.Flushed},
	}
	h.Start = &StartingPoint{History: newest}
	if h.Topics.origin != nil {
		h.Start.Origin = h.Topics.origin.Reach
	}
	for _, tails := range h.Topics.tails {
		for i := range tails {
			h.Result.Highest = max(h.Result.Highest, tails[i].position.History)
		}
	}
	if h.Topics.LogEnd == nil {
		h.Result.Outcome = OutcomeNew
		return h.beginLog()
	}
	h.Result.LogEnd, h.Result.Lacking, h.Start.Replaced = h.Topics.LogEnd.Reach, h.Topics.replaced, h.Topics.replaced
	if h.Topics.heartbeat != nil {
		h.Result.LogHeartbeat = h.Topics.heartbeat.Heartbeat.At
	}
	h.Result.Highest = max(h.Result.Highest, h.Topics.LogEnd.Reach.History)
	if err := h.checkSource(); err != nil {
		return err
	}
	if accepted, err := h.planAccepted(ctx); accepted || err != nil {
		return err
	}
	return h.checkLog(ctx)
}

// checkLog checks whether the log can be continued from this database.
func (h *Check) checkLog(ctx context.Context) error {
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
	if slot := h.slot(); h.slotIsRemade() && slot.Below(h.Topics.LogEnd.Reach) && common == h.Topics.LogEnd.Reach {
		return h.refuseBent(ctx, fmt.Sprintf("the slot was made at %s, and the log had come to %s by then", slot.LSN, h.Topics.LogEnd.Reach.LSN))
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
	h.Start.FirstMessage, h.Start.ReadBeyond = h.comparison.firstMessage, h.comparison.readBeyond
	if err := h.watchForOther(ctx); err != nil {
		return err
	}
	if r := h.Result; len(r.Lacking) > 0 && r.Outcome == OutcomeStraight {
		r.Outcome, r.Why = OutcomeGap, strings.Join(r.Lacking, " and ")+" lacks what was acknowledged in it"
	}
	return h.planSlotGap(common)
}

// compareStream compares the log with what the slot sends again.
func (h *Check) compareStream(ctx context.Context) error {
	h.comparison = &comparison{
		stream: h.Stream, identity: h.identity, client: h.Client, route: h.Route, topics: h.Topics, walk: h.walk,
		assembler: evidence.NewAssembler(h.Route.Source, h.Keys, evidence.Standing{Tables: h.Catalog.coveredUpTo(h.Start.Last.Beat)}),
		router:    evidence.NewRouter(h.Route, h.HashKeys.Of(h.Route)), markers: h.Start.Markers,
		noHashKey: h.Topics.CheckHashKey(h.HashKeys, h.Start.Reach),
	}
	return h.comparison.run(ctx)
}

// slot returns the slot's position.
func (h *Check) slot() evidence.Reach {
	at := h.Stream.StartedAt()
	return evidence.Reach{History: h.Start.History.Number, Timeline: h.identity.TimelineOf(at), LSN: at}
}

// slotIsRemade reports whether init has made the slot again after the log began, unknown to the log. Then nothing below the slot's beginning can be
// compared. It needs a walk down to the slot.
func (h *Check) slotIsRemade() bool {
	at := h.Stream.StartedAt()
	return at == h.Catalog.slotStart && at != h.Topics.origin.Reach.LSN && (h.walk.before == nil || h.walk.before.Reach.LSN != at)
}

// undecidable says why it cannot be known whether the last transactions of the log happened in this database; empty if it can. That is so if the
// slot begins above the log's end, so that it does not send those transactions, and the server was also started since the last heartbeat that
// log and database both have, so that it may be a copy made before them. On another timeline there is no doubt: everything below its beginning
// is the same.
func (h *Check) undecidable() string {
	beat := h.Start.Last.Beat
	if beat == nil || h.walk.lost == 0 || !h.Topics.LogEnd.Reach.Below(h.slot()) || h.Topics.LogEnd.Reach.Timeline != h.identity.Timeline ||
		!h.restartedSince(beat) {
		return ""
	}
	return fmt.Sprintf("the slot begins at %s, above the log's end, and the server was started since the last heartbeat that both have, "+
		"of %s: whether the %d transactions that the log has after it happened here cannot be told",
		h.slot().LSN, heartbeatTime(beat), h.walk.lost)
}

// restartedSince reports whether the server was started after a heartbeat, or is not the server of the heartbeat.
func (h *Check) restartedSince(beat *evidence.Heartbeat) bool {
	return !beat.ServerStart.Equal(h.identity.ServerStart.Truncate(time.Microsecond))
}

// heartbeatTime formats a heartbeat's time for a person.
func heartbeatTime(beat *evidence.Heartbeat) string { return beat.At.Format("2006-01-02 15:04:05 UTC") }
