package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lapse/audit/kafka"
	"lapse/replication"
)

// startingPoint is what the topics say of how far this database's events have come.
type startingPoint struct {
	tails map[string][]replication.Position // by topic and partition; zero where there is nothing
	reach Reach
	begun Kind // of the log's last record; empty for an empty log
}

// survey reads the ends of all topics, below the fences. What it finds decides whether, and from where, this auditor may
// go on: the slot and the log must be of one history.
//
//	log empty, slot never confirmed            the beginning
//	log ends at or above the slot's position   go on; what the slot sends again is dropped
//	log empty, slot confirmed                  ErrLogMissing
//	log ends below the slot's position         ErrLogBehind
//	anything else in a topic                   ErrForeignTopic, ErrRouteChanged
func survey(p *kafka.Publisher, route *Route, stream *replication.Stream, slotStart replication.LSN) (*startingPoint, error) {
	s := &startingPoint{tails: map[string][]replication.Position{}}
	found := false
	for _, topic := range []Topic{route.System, route.User} {
		s.tails[topic.Name] = make([]replication.Position, topic.Partitions)
		for partition := range topic.Partitions {
			record, _, ok := p.Last(topic.Name, partition)
			if !ok {
				continue
			}
			position, err := positionOf(&record, &route.Source)
			if err != nil {
				return nil, err
			}
			s.tails[topic.Name][partition] = position
			found = true
		}
	}
	record, _, ok := p.Last(route.Log.Name, 0)
	if ok {
		return s, s.resume(record.Value, route, stream)
	}
	if found {
		return nil, refuse(ErrLogMissing, "%s is empty, and %s or %s is not",
			"the log was lost or another one is configured: name the topic that has it (topics.log)",
			route.Log.Name, route.System.Name, route.User.Name)
	}
	return s, s.begin(route, stream, slotStart)
}

// anotherLog is how to go on without the log that there was.
const anotherLog = "stop the audit, drop the slot, name new topics in lapse.yaml (topics) and run lapse init --new-slot: another " +
	"log begins there, and what was deleted in between is a gap"

// begin starts a log at the slot's own beginning, and nowhere else.
func (s *startingPoint) begin(route *Route, stream *replication.Stream, slotStart replication.LSN) error {
	if slotStart == 0 {
		return refuse(ErrLogMissing, "the catalog does not say where slot %s begins", "run lapse init", route.Source.Slot)
	}
	if stream.StartedAt() != slotStart {
		return refuse(ErrLogMissing, "slot %s began at %s and stands at %s, and %s is empty",
			"name the topic that has the log (topics.log); if it is lost, so is the record of what was deleted: "+
				anotherLog,
			route.Source.Slot, slotStart, stream.StartedAt(), route.Log.Name)
	}
	s.reach = Reach{Timeline: stream.Identity().Timeline, LSN: slotStart}
	return nil
}

// resume goes on where the log ends. The database keeps the name that it has in the log, since events have it too.
func (s *startingPoint) resume(value []byte, route *Route, stream *replication.Stream) error {
	end, err := parseLogEnd(value)
	if err != nil {
		return refuse(ErrForeignTopic, "%s: %v", "name a topic that is used by this database alone (topics.log)",
			route.Log.Name, err)
	}
	if end.SystemIdentifier != route.Source.SystemIdentifier || end.DatabaseOID != route.Source.DatabaseOID {
		return refuse(ErrForeignTopic, "%s has the log of database %d of system %d; this one is %d of %d",
			"give each database topics of its own (topics)", route.Log.Name,
			end.DatabaseOID, end.SystemIdentifier, route.Source.DatabaseOID, route.Source.SystemIdentifier)
	}
	route.Source.Database = end.Database
	if TextFormOf(route.Source.Encoding) == RawText {
		route.Source.Database = string(DecodeText(end.Database))
	}
	if end.Route != route.Fingerprint() || end.RouteVersion != route.Version {
		return refuse(ErrRouteChanged, "%s was begun with other topics, another number of partitions, another slot or another hash key",
			"put topics, slot and the key named hash back to what they were: a route that changes while its log goes on is not supported",
			route.Log.Name)
	}
	if end.Reached < stream.StartedAt() {
		return refuse(ErrLogBehind, "%s ends at %s, the slot stands at %s",
			"what was deleted in between is in no log: put the log back; if it is lost: "+anotherLog, route.Log.Name, end.Reached, stream.StartedAt())
	}
	s.reach = Reach{Timeline: end.Timeline, LSN: end.Reached}
	s.begun = end.Kind
	return nil
}

// positionOf reads an event's position from its headers.
func positionOf(rec *kafka.Record, source *Source) (replication.Position, error) {
	headers := make(map[string]string, len(rec.Headers))
	for _, h := range rec.Headers {
		headers[h.Key] = string(h.Value)
	}
	foreign := func(detail string, args ...any) error {
		return refuse(ErrForeignTopic, "%s/%d: %s", "nobody else may write there: name topics that this database has for "+
			"itself (topics)", rec.Topic, rec.Partition, fmt.Sprintf(detail, args...))
	}
	timeline, err1 := strconv.ParseUint(headers[headerTLI], 10, 32)
	commit, err2 := parseHex(headers[headerLSN], 8)
	ordinal, err3 := parseHex(headers[headerSeq], 4)
	if err := errors.Join(err1, err2, err3); err != nil || headers[headerSchema] != strconv.Itoa(EventSchema) {
		return replication.Position{}, foreign("the last record is no event that this program knows")
	}
	if headers[headerSystem] != strconv.FormatUint(source.SystemIdentifier, 10) ||
		headers[headerDB] != strconv.FormatUint(uint64(source.DatabaseOID), 10) {
		return replication.Position{}, foreign("the last event is of database %q of system %q; this one is %d of %d",
			headers[headerDB], headers[headerSystem], source.DatabaseOID, source.SystemIdentifier)
	}
	return replication.Position{
		Timeline: replication.Timeline(timeline), Commit: replication.LSN(commit), Ordinal: uint32(ordinal),
	}, nil
}

func parseHex(s string, size int) (uint64, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != size {
		return 0, errors.New("not hexadecimal of the right length")
	}
	var n uint64
	for _, digit := range b {
		n = n<<8 | uint64(digit)
	}
	return n, nil
}

// inscribe writes what a log begins with, as far as it is not there, and waits until it is acknowledged: no event may be
// in a topic whose log has no beginning.
//
//	crash before the origin is acknowledged    the log is empty and so is everything else: the next start begins it
//	crash before the route is acknowledged     the log ends with its origin: the next start writes the route
func (r *relay) inscribe(ctx context.Context, s *startingPoint, c *Config) error {
	now := r.now().UTC().Truncate(time.Millisecond)
	if s.begun == "" {
		r.enqueue(r.scribe.origin(s.reach.Timeline, s.reach.LSN, c.Keys, now))
	}
	if s.begun == "" || s.begun == KindOrigin {
		r.enqueue(r.scribe.routing(s.reach.Timeline, s.reach.LSN, now))
	}
	for {
		if err := r.settle(); err != nil {
			return err
		}
		if r.queue.empty() {
			return nil
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}
