package audit

import (
	"encoding/hex"
	"time"

	"github.com/google/uuid"

	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// LogSchema is the version of the log records' format.
const LogSchema = 1

// Kind says what a record of the log is about.
type Kind string

// The kinds of log records there are. Others follow; a reader passes over what it does not know.
const (
	KindOrigin      Kind = "origin"      // first: the slot, where it begins, by which keys
	KindRoute       Kind = "route"       // how events become records from here on
	KindTransaction Kind = "transaction" // what one transaction claimed, and what was seen of it
	KindCoverage    Kind = "coverage"    // everything up to here has been read, and there was nothing else
	KindGap         Kind = "gap"         // what was deleted between two positions nobody has read
	KindRewind      Kind = "rewind"      // what the log has above a position never happened in the database it goes on with
)

// Leaf is one record of the log. Its value is a function of the WAL and the route alone, but for the instant in a
// coverage record.
type Leaf struct {
	Kind  Kind
	Reach Reach     // everything that ends at or below it is in the topics and in the log
	Seq   uint32    // tells records apart that reach the same position: origin and route
	Time  time.Time // Kafka's timestamp; no part of the leaf
	Value []byte
}

// A scribe writes leaves for one route.
type scribe struct {
	route *Route
	form  TextForm
	head  []byte // what stands the same in every leaf

	nonce uuid.UUID  // of the history in force
	beat  *Heartbeat // the last one that was read; nil for none
}

func newScribe(route *Route) *scribe {
	s := &scribe{route: route, form: TextFormOf(route.Source.Encoding)}
	s.head = appendSource(append(s.head, ','), &route.Source, s.form)
	s.head = appendUint(append(s.head, `,"route_version":`...), uint64(route.Version))
	s.head = appendText(append(s.head, `,"route":`...), route.Fingerprint(), UTF8Text)
	return s
}

// begin writes what every leaf begins with, and by which alone a restart knows where the log stands. The heartbeat is the
// last one before the leaf, which places the leaf in time and in one copy of the database.
func (s *scribe) begin(l *Leaf) []byte {
	b := make([]byte, 0, 1024)
	b = append(append(append(b, `{"kind":"`...), l.Kind...), `","schema":`...)
	b = append(appendUint(b, LogSchema), s.head...)
	b = appendUint(append(b, `,"history":`...), uint64(l.Reach.History))
	b = appendUUID(append(b, `,"nonce":`...), s.nonce)
	b = appendUint(append(b, `,"timeline":`...), uint64(l.Reach.Timeline))
	b = appendLSN(append(b, `,"reached":`...), l.Reach.LSN)
	if s.beat != nil {
		b = appendUUID(append(b, `,"beat":`...), s.beat.Nonce)
	}
	return b
}

// origin is the log's first record. The keys themselves never leave the process.
func (s *scribe) origin(consistent Reach, keys []schemas.Key, at time.Time) *Leaf {
	l := &Leaf{Kind: KindOrigin, Reach: consistent, Time: at}
	b := appendText(append(s.begin(l), `,"slot":`...), s.route.Source.Slot, UTF8Text)
	b = append(appendLSN(append(b, `,"consistent_point":`...), consistent.LSN), `,"keys":[`...)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(append(b, `{"use":"tag","fingerprint":`...), fingerprint(key), UTF8Text), '}')
	}
	l.Value = append(b, `]}`...)
	return l
}

// routing is the record of the route, which holds for everything above reached.
func (s *scribe) routing(reached Reach, at time.Time) *Leaf {
	l := &Leaf{Kind: KindRoute, Reach: reached, Seq: 1, Time: at}
	l.Value = append(s.route.appendRouting(append(s.begin(l), `,"routing":`...)), '}')
	return l
}

// transaction is the record of one transaction that is wholly in the topics.
func (s *scribe) transaction(tx *replication.Tx, a *Account, verdict Verdict) *Leaf {
	l := &Leaf{Kind: KindTransaction, Reach: endOf(tx), Time: tx.CommitTime}
	b := appendLSN(append(s.begin(l), `,"commit_lsn":`...), tx.CommitLSN)
	b = appendInstant(append(b, `,"commit_timestamp":`...), tx.CommitTime)
	b = appendUint(append(b, `,"xid":`...), uint64(tx.XID))
	if tx.Origin != "" && a.Batches == 0 {
		b = appendText(append(b, `,"origin":`...), tx.Origin, s.form)
	}
	b = append(append(append(b, `,"verdict":"`...), verdict...), '"')
	if a.Claim != nil {
		b = s.appendClaimed(b, a)
	}
	b = append(b, `,"observed":[`...)
	named := a.Tallies[:min(len(a.Tallies), maxLines)]
	for i := range named {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendTally(b, &named[i])
	}
	l.Value = append(appendOthers(append(b, ']'), a.Tallies[len(named):]), '}')
	return l
}

// maxLines bounds how many relations a transaction's record names. A line is shorter than a kilobyte; one transaction may
// delete from thousands of partitions.
const maxLines = 512

// appendOthers sums up what is beyond the lines that there is room for.
func appendOthers(b []byte, rest []Tally) []byte {
	if len(rest) == 0 {
		return b
	}
	type kind struct {
		op      Op
		cause   Cause
		cascade bool
	}
	var kinds []kind // in the order in which each first came
	tables, events := map[kind]uint64{}, map[kind]uint64{}
	for i := range rest {
		k := kind{rest[i].Op, rest[i].Cause, rest[i].Cascade}
		if tables[k] == 0 {
			kinds = append(kinds, k)
		}
		tables[k]++
		events[k] += rest[i].Events
	}
	b = append(b, `,"others":[`...)
	for i, k := range kinds {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"op":"`...), k.op.String()...), `","cause":"`...)
		b = appendBool(append(append(b, k.cause.String()...), `","cascade":`...), k.cascade)
		b = appendUint(append(b, `,"tables":`...), tables[k])
		b = append(appendUint(append(b, `,"events":`...), events[k]), '}')
	}
	return append(b, ']')
}

// appendClaimed writes the claim that verified, with the digest of what ran, and, if the result is its own, what it says
// was deleted.
func (s *scribe) appendClaimed(b []byte, a *Account) []byte {
	b = appendClaim(append(b, `,"claim":{`...), a.Claim, s.form)
	b = appendUint(append(b, `,"target":`...), uint64(a.Claim.Target))
	b = append(hex.AppendEncode(append(b, `,"functions":"`...), a.Claim.Functions[:]), `"}`...)
	r := a.Result
	if r == nil || r.Batch != a.Claim.Batch {
		return b
	}
	b = appendInt(append(b, `,"claimed":{"picked":`...), r.Picked)
	b = appendInt(append(b, `,"deleted":`...), r.Deleted)
	b = append(b, `,"by_relation":[`...)
	named := r.ByRelation[:min(len(r.ByRelation), maxLines)]
	for i, c := range named {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"table_oid":`...), uint64(c.OID))
		b = append(appendInt(append(b, `,"rows":`...), c.Rows), '}')
	}
	b = append(b, ']')
	if rest := r.ByRelation[len(named):]; len(rest) > 0 {
		var rows uint64 // a sum of what anybody may have written: it wraps around rather than turn negative
		for _, c := range rest {
			rows += uint64(c.Rows)
		}
		b = appendUint(append(b, `,"others":{"tables":`...), uint64(len(rest)))
		b = append(appendUint(append(b, `,"rows":`...), rows), '}')
	}
	return append(b, '}')
}

func (s *scribe) appendTally(b []byte, t *Tally) []byte {
	b = appendText(append(b, `{"table":`...), t.Table, s.form)
	b = appendUint(append(b, `,"table_oid":`...), uint64(t.OID))
	b = append(append(append(b, `,"op":"`...), t.Op.String()...), `","cause":"`...)
	b = append(append(b, t.Cause.String()...), '"')
	b = appendBool(append(b, `,"cascade":`...), t.Cascade)
	return append(appendUint(append(b, `,"events":`...), t.Events), '}')
}

// coverage says that everything up to reached has been read.
func (s *scribe) coverage(reached Reach, at time.Time, w *witness) *Leaf {
	at = at.UTC().Truncate(time.Microsecond)
	l := &Leaf{Kind: KindCoverage, Reach: reached, Time: at}
	l.Value = append(appendInstant(append(s.begin(l), `,"at":`...), at), w.append(nil)...)
	l.Value = append(l.Value, '}')
	return l
}

// beaten is the record of a heartbeat, and of everything before it; h is the scribe's from here on.
func (s *scribe) beaten(tx *replication.Tx, h *Heartbeat, w *witness) *Leaf {
	s.beat = h
	l := &Leaf{Kind: KindCoverage, Reach: endOf(tx), Time: tx.CommitTime}
	b := appendInstant(append(s.begin(l), `,"at":`...), h.At)
	b = appendHeartbeat(append(b, `,"heartbeat":`...), h, s.form)
	l.Value = append(w.append(b), '}')
	return l
}

// marked is the record of a marker. h is the heartbeat that showed it, if one did.
func (s *scribe) marked(m *Marker, reached Reach, h *Heartbeat, w *witness) *Leaf {
	if h != nil {
		s.beat = h
	}
	l := &Leaf{Kind: KindGap, Reach: reached, Time: m.Time}
	if m.Op == Gap && m.Reason != ReasonSlot {
		l.Seq = m.At.Ordinal // several of one heartbeat reach as far
	}
	if m.Op == Rewind {
		l.Kind = KindRewind
	}
	b := appendInstant(append(s.begin(l), `,"at":`...), m.Time)
	b = appendMarker(append(b, ','), m)
	if h != nil {
		b = appendHeartbeat(append(b, `,"heartbeat":`...), h, s.form)
	}
	l.Value = append(w.append(b), '}')
	return l
}

// witness is what a coverage record says beside its position, so that a later start can tell whether it reads the same
// database and the same topics.
type witness struct {
	ancestry replication.Ancestry // the timelines that the server has left
	ends     []topicEnds          // where each topic ended, fences included; nil for all records but those of heartbeats
	process  string               // that wrote the fences
}

type topicEnds struct {
	topic        string
	ends, fences []int64 // by partition; -1 where nothing is known
}

func (w *witness) append(b []byte) []byte {
	if w == nil {
		return b
	}
	b = append(b, `,"ancestry":[`...)
	for i, s := range w.ancestry {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"timeline":`...), uint64(s.Timeline))
		b = append(appendLSN(append(b, `,"end":`...), s.At), '}')
	}
	if b = append(b, ']'); w.ends == nil {
		return b
	}
	b = append(b, `,"ends":{`...)
	for i := range w.ends {
		b = appendOffsets(b, i, w.ends[i].topic, w.ends[i].ends)
	}
	b = append(b, `},"fences":{`...)
	for i := range w.ends {
		b = appendOffsets(b, i, w.ends[i].topic, w.ends[i].fences)
	}
	return appendText(append(b, `},"process":`...), w.process, UTF8Text)
}

func appendOffsets(b []byte, i int, topic string, offsets []int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = append(appendText(b, topic, UTF8Text), ':', '[')
	for k, offset := range offsets {
		if k > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, offset)
	}
	return append(b, ']')
}

// record is the leaf as it goes to Kafka. It has no key: a compacted topic, which would throw leaves away, refuses it.
func (s *scribe) record(l *Leaf) kafka.Record {
	return kafka.Record{
		Topic: s.route.Log.Name,
		Value: l.Value,
		Time:  l.Time,
		Headers: []kafka.Header{
			{Key: headerOp, Value: []byte(l.Kind)},
			{Key: headerLSN, Value: appendHex(nil, uint64(l.Reach.LSN), 16)},
			{Key: headerSeq, Value: appendHex(nil, uint64(l.Seq), 8)},
			{Key: headerSystem, Value: appendUint(nil, s.route.Source.SystemIdentifier)},
			{Key: headerDB, Value: appendUint(nil, uint64(s.route.Source.DatabaseOID))},
			{Key: headerHistory, Value: appendUint(nil, uint64(l.Reach.History))},
			{Key: headerTLI, Value: appendUint(nil, uint64(l.Reach.Timeline))},
			{Key: headerSchema, Value: appendUint(nil, LogSchema)},
		},
	}
}
