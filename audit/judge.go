package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// judge is the check of Histories. It decides from what was read of the topics and of the database, and from what the
// slot sends, how a start goes on.
type judge struct {
	auditor  *Auditor
	client   *kafka.Client
	stream   *replication.Stream
	identity replication.Identity
	database *Database
	route    *evidence.Route
	past     *past
	walk     *walk
	thorough bool // look for the fork, whatever is known already: for people
	compared bool // the stream has been read; it cannot be compared twice

	finding *Examination
	start   *startingPoint
}

// startingPoint is what a start goes on from.
type startingPoint struct {
	history HistoryRow
	reach   evidence.Reach      // of the log's end
	begun   evidence.Kind       // of the log's last record; empty for an empty log
	named   *evidence.Heartbeat // the last that records name; nil for none
	last    evidence.LastBeat   // the last that the next one must follow
	markers []evidence.Marker   // to be written before anything else

	origin   evidence.Reach // of the log
	replaced []string       // topics that have lost what was in them: gaps, written with the next heartbeat
	comparison
}

// run judges. What it returns is an error where the start must not go on: *BentError, *RefusalError, or what broke.
func (j *judge) run(ctx context.Context) error {
	id := &j.identity
	newest := j.database.Newest()
	j.finding = &Examination{
		Standing: StandingStraight, Slot: j.stream.StartedAt(), ServerStart: id.ServerStart, Highest: newest.Number,
		Database: evidence.Reach{History: newest.Number, Timeline: id.Timeline, LSN: id.Flushed},
	}
	j.start = &startingPoint{history: newest}
	if j.past.origin != nil {
		j.start.origin = j.past.origin.Reach
	}
	for _, tails := range j.past.tails {
		for i := range tails {
			j.finding.Highest = max(j.finding.Highest, tails[i].position.History)
		}
	}
	if j.past.end == nil {
		j.finding.Standing = StandingNew
		return j.begin()
	}
	j.finding.LogEnd, j.start.replaced = j.past.end.Reach, j.past.replaced
	if j.past.beat != nil {
		j.finding.LogBeat = j.past.beat.Heartbeat.At
	}
	j.finding.Highest = max(j.finding.Highest, j.past.end.Reach.History)
	if err := j.sameLog(); err != nil {
		return err
	}
	if accepted, err := j.accepted(ctx); accepted || err != nil {
		return err
	}
	return j.resume(ctx)
}

// begin starts a log at the slot's own beginning, and nowhere else.
func (j *judge) begin() error {
	if !j.past.empty() {
		return refuse(ErrLogMissing, "%s is empty, and %s or %s is not",
			"the log was lost or another one is configured: name the topic that has it (topics.log)",
			j.route.Log.Name, j.route.System.Name, j.route.User.Name)
	}
	at, begun := j.database.SlotStart, j.stream.StartedAt()
	if at == 0 {
		return refuse(ErrLogMissing, "the catalog does not say where slot %s begins", "run lapse init", j.route.Source.Slot)
	}
	if begun != at {
		return refuse(ErrLogMissing, "slot %s began at %s and stands at %s, and %s is empty",
			"name the topic that has the log (topics.log); if it is lost, so is the record of what was deleted: "+
				anotherLog, j.route.Source.Slot, at, begun, j.route.Log.Name)
	}
	// The slot's beginning is on the timeline on which it lies, which is not the server's where it was promoted since.
	j.start.reach = evidence.Reach{History: j.start.history.Number, Timeline: j.identity.TimelineOf(at), LSN: at}
	j.start.last = evidence.LastBeat{Reach: j.start.reach}
	return nil
}

// anotherLog is how to go on without the log that there was.
const anotherLog = "stop the audit, drop the slot, name new topics in lapse.yaml (topics) and run lapse init --new-slot: another " +
	"log begins there, and what was deleted in between is a gap"

// sameLog refuses a log that was begun for something else. The database keeps the name that it has in the log, since
// events have it too.
func (j *judge) sameLog() error {
	end, route := j.past.end, j.route
	if end.SystemIdentifier != route.Source.SystemIdentifier || end.DatabaseOID != route.Source.DatabaseOID {
		return refuse(ErrForeignTopic, "%s has the log of database %d of system %d; this one is %d of %d",
			"give each database topics of its own (topics)", route.Log.Name,
			end.DatabaseOID, end.SystemIdentifier, route.Source.DatabaseOID, route.Source.SystemIdentifier)
	}
	route.Source.Database = end.Database
	if evidence.TextFormOf(route.Source.Encoding) == evidence.RawText {
		route.Source.Database = string(evidence.DecodeText(end.Database))
	}
	if end.Route != route.Fingerprint() || end.RouteVersion != route.Version {
		return refuse(ErrRouteChanged, "%s was begun with other topics, another number of partitions, another slot or another hash key",
			"put topics, slot and the key named hash back to what they were: a route that changes while its log goes on is not supported",
			route.Log.Name)
	}
	return j.sameKeys()
}

// sameKeys refuses tag keys of which none is one that the log was begun with: with others every deletion would come out as
// unverified.
func (j *judge) sameKeys() error {
	if j.past.origin.Kind != evidence.KindOrigin {
		return refuse(ErrLogMissing, "%s begins with a record of kind %s", "somebody has deleted records of the log, which is kept for ever: "+
			"put it back; if it is lost: "+anotherLog, j.route.Log.Name, j.past.origin.Kind)
	}
	known := j.past.origin.Keys["tag"]
	for _, key := range j.auditor.config.Keys {
		if slices.Contains(known, schemas.Fingerprint(key)) {
			return nil
		}
	}
	return refuse(ErrKeyChanged, "%s was begun with the key %s", "put the key named tag back (keys: in lapse.yaml)",
		j.route.Log.Name, strings.Join(known, ", "))
}

// resume looks whether the log can be gone on with.
func (j *judge) resume(ctx context.Context) error {
	if why := j.strangeHistory(); why != "" {
		return j.bent(ctx, why)
	}
	common, why, err := j.common(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		return j.bent(ctx, why)
	}
	if slot := j.slot(); j.slotMadeAnew() && slot.Below(j.past.end.Reach) && common == j.past.end.Reach {
		return j.bent(ctx, fmt.Sprintf("the slot was made at %s, and the log had come to %s by then", slot.LSN, j.past.end.Reach.LSN))
	}
	if why := j.cannotBeTold(); why != "" {
		return j.bent(ctx, why)
	}
	j.goOn(common)
	if err := j.compare(ctx); err != nil {
		return err
	}
	if j.start.differs != "" {
		return j.bent(ctx, j.start.differs)
	}
	if err := j.watch(ctx); err != nil {
		return err
	}
	return j.slotGap(common)
}

// slot is where the slot stands.
func (j *judge) slot() evidence.Reach {
	at := j.stream.StartedAt()
	return evidence.Reach{History: j.start.history.Number, Timeline: j.identity.TimelineOf(at), LSN: at}
}

// slotMadeAnew says whether init has made the slot after the log began, and the log does not know: nothing below its
// beginning can be compared. It wants a walk down to the slot.
func (j *judge) slotMadeAnew() bool {
	at := j.stream.StartedAt()
	return at == j.database.SlotStart && at != j.past.origin.Reach.LSN && (j.walk.before == nil || j.walk.before.Reach.LSN != at)
}

// cannotBeTold says why nobody can know whether what the log has last happened in this database: the slot begins behind it, so
// that it is not sent, and the server was started since the last heartbeat that both have, so that it may be a copy of before
// it. A new timeline tells: what lies below its beginning is the same.
func (j *judge) cannotBeTold() string {
	beat := j.start.last.Beat
	if beat == nil || j.walk.lost == 0 || !j.past.end.Reach.Below(j.slot()) || j.past.end.Reach.Timeline != j.identity.Timeline ||
		!j.restartedSince(beat) {
		return ""
	}
	return fmt.Sprintf("the slot begins at %s, above the log's end, and the server was started since the last heartbeat that both have, "+
		"of %s: whether the %d transactions that the log has behind it happened here cannot be told",
		j.slot().LSN, beat.At.Format("2006-01-02 15:04:05 UTC"), j.walk.lost)
}

// restartedSince says whether the server was started after a heartbeat, or is another one.
func (j *judge) restartedSince(beat *evidence.Heartbeat) bool {
	return !beat.ServerStart.Equal(j.identity.ServerStart.Truncate(time.Microsecond))
}

// strangeHistory says why the history in force in the database is not the log's.
func (j *judge) strangeHistory() string {
	end, newest := j.past.end, j.start.history
	switch {
	case newest.Number < end.Reach.History:
		return fmt.Sprintf("the log is in history %d, the database in history %d: it is a copy of before that was accepted",
			end.Reach.History, newest.Number)
	case newest.Number > end.Reach.History:
		return fmt.Sprintf("history %d was accepted for a log that ended at %s, and it ends at %s", newest.Number, newest.LogEnd, end.Reach)
	case newest.Nonce != end.Nonce:
		return fmt.Sprintf("history %d of the database is not the one of the log", newest.Number)
	default:
		return ""
	}
}

// common finds the last position that log and database may have in common, by timelines and heartbeats alone. why says
// what forbids to go on from there.
func (j *judge) common(ctx context.Context) (common evidence.Reach, why string, err error) {
	end, id := j.past.end, &j.identity
	common = end.Reach
	left, ended := id.Ancestry.End(end.Reach.Timeline)
	switch {
	case end.Reach.Timeline == id.Timeline:
		if end.Reach.LSN > id.Flushed {
			return common, fmt.Sprintf("the log reaches %s, and the server has written no more than %s", end.Reach.LSN, id.Flushed), nil
		}
	case !ended:
		return common, fmt.Sprintf("the log is on timeline %d, which the server, on timeline %d, never was on", end.Reach.Timeline, id.Timeline), nil
	case left < end.Reach.LSN:
		common.LSN = left
	}
	if j.walk, err = walkBack(ctx, j.client, j.route, j.past, j.slot(), j.wantedBeat(common)); err != nil {
		return common, "", err
	}
	beat := j.walk.beat
	j.start.last = evidence.LastBeat{Reach: j.past.origin.Reach}
	if beat == nil { // a log without heartbeats says nothing of how much was lost
		if common != end.Reach {
			why = fmt.Sprintf("the log reaches %s, and the server left that timeline at %s", end.Reach.LSN, common.LSN)
		}
		return common, why, nil
	}
	j.start.last = evidence.LastBeat{Beat: beat.Heartbeat, Reach: beat.Reach}
	if _, there := j.database.Beats[beat.Heartbeat.Nonce]; !there {
		return common, fmt.Sprintf("the heartbeat of %s, which the log has at %s, is not in the database",
			beat.Heartbeat.At.Format("2006-01-02 15:04:05 UTC"), beat.Reach.LSN), nil
	}
	for _, was := range beat.Ancestry {
		if at, found := id.Ancestry.End(was.Timeline); !found || at != was.At {
			return common, fmt.Sprintf("the log's server left timeline %d at %s, and this one did not", was.Timeline, was.At), nil
		}
	}
	return common, j.lost(common), nil
}

// wantedBeat takes the newest heartbeat at or below the common position. The next one must follow it, so one of a
// transaction that comes again is none.
func (j *judge) wantedBeat(common evidence.Reach) func(*evidence.LogRecord) bool {
	if j.past.end.Beat == (uuid.UUID{}) {
		return nil
	}
	return func(r *evidence.LogRecord) bool { return !common.Below(r.Reach) && !j.past.partial(r) }
}

// lost says whether a promotion lost more than may be lost without a person's word.
func (j *judge) lost(common evidence.Reach) string {
	if common == j.past.end.Reach {
		return ""
	}
	until := j.past.beat.Heartbeat.At
	if j.past.end.Time.After(until) { // heartbeats may have failed
		until = j.past.end.Time
	}
	lost := until.Sub(j.start.last.Beat.At)
	if lost <= j.auditor.config.FailoverTolerance {
		return ""
	}
	return fmt.Sprintf("the server left timeline %d at %s, and the log goes on for %s after that: more than failover_tolerance, which is %s",
		common.Timeline, common.LSN, lost.Round(time.Second), j.auditor.config.FailoverTolerance)
}

// goOn takes the log's end for the start, with a rewind where the server was promoted without what the log has last.
func (j *judge) goOn(common evidence.Reach) {
	end := j.past.end
	j.start.reach, j.start.begun = j.past.whole.Reach, end.Kind
	if common != end.Reach {
		j.finding.Standing = StandingPromoted
		j.rewind(evidence.ReasonTimeline, common, j.start.last.Beat.At)
	}
	j.finding.Fork = common
}

// rewind plans a rewind record at the fork, on the timeline and in the history that go on there. Its position is the one
// before the fork, where no record of the server's log begins: the next commit may stand at the fork itself.
func (j *judge) rewind(reason evidence.Reason, fork evidence.Reach, at time.Time) {
	begin := evidence.Reach{History: j.start.history.Number, Timeline: j.identity.TimelineOf(fork.LSN), LSN: fork.LSN}
	j.start.markers = append(j.start.markers, evidence.Marker{
		Op: evidence.Rewind, Reason: reason, Time: at, From: fork, To: j.past.end.Reach,
		At: replication.Position{History: begin.History, Timeline: begin.Timeline, Commit: begin.LSN - 1},
	})
	j.start.reach = begin
}

// slotGap plans a gap where the slot begins above the log's end: init made it anew. One that nobody recorded is refused.
//
// The gap's position is the one before the slot's: no record of the server's log begins there, so no transaction has it.
func (j *judge) slotGap(common evidence.Reach) error {
	slot := j.slot()
	if !j.start.reach.Below(slot) {
		return nil
	}
	if j.database.SlotStart != slot.LSN {
		return refuse(ErrLogBehind, "%s ends at %s, the slot stands at %s",
			"somebody else has moved or made the slot: drop it (pg_drop_replication_slot), and run lapse init --new-slot: the log goes on "+
				"with a gap", j.route.Log.Name, common.LSN, slot.LSN)
	}
	if j.finding.Standing == StandingStraight {
		j.finding.Standing = StandingBehind
	}
	j.start.markers = append(j.start.markers, evidence.Marker{
		Op: evidence.Gap, Reason: evidence.ReasonSlot, Time: j.database.SlotMade, From: j.start.reach, To: slot,
		At: replication.Position{History: slot.History, Timeline: slot.Timeline, Commit: slot.LSN - 1},
	})
	j.start.reach, j.start.last.Reach = slot, slot
	if beat := j.start.last.Beat; beat != nil {
		unread := *beat // others may have been written before the slot was made
		unread.Nonce = uuid.UUID{}
		j.start.named, j.start.last.Beat = beat, &unread
	}
	return nil
}

// accepted says whether a person has said that this log goes on with this database, and plans it.
func (j *judge) accepted(ctx context.Context) (bool, error) {
	newest, end := j.start.history, j.past.end
	if newest.Number <= end.Reach.History || newest.LogEnd != end.Reach {
		return false, nil
	}
	j.finding.Standing, j.finding.Fork = StandingAccepted, newest.Fork
	j.start.begun = end.Kind
	walked, err := walkBack(ctx, j.client, j.route, j.past, newest.Fork, func(r *evidence.LogRecord) bool {
		_, there := j.database.Beats[r.Heartbeat.Nonce]
		return there && !newest.Fork.Below(r.Reach)
	})
	if err != nil {
		return false, err
	}
	j.start.last = evidence.LastBeat{Reach: newest.Fork}
	if walked.beat != nil {
		j.start.last.Beat = walked.beat.Heartbeat
	}
	j.rewind(evidence.ReasonAccepted, newest.Fork, newest.At)
	return true, j.slotGap(newest.Fork)
}

// compare holds the log against what the slot sends.
func (j *judge) compare(ctx context.Context) error {
	c := &j.start.comparison
	j.compared = true
	*c = comparison{
		stream: j.stream, identity: j.identity, client: j.client, route: j.route, past: j.past, walk: j.walk,
		assembler: evidence.NewAssembler(j.route.Source, j.auditor.config.Keys, evidence.Standing{}), router: evidence.NewRouter(j.route, j.auditor.config.HashKey),
		markers: j.start.markers,
	}
	return c.compare(ctx)
}
