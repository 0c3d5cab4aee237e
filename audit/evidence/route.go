package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// Topic is a topic and the numbers of its partitions, which routing depends on.
type Topic struct {
	Name       string
	Partitions int32 // a row's events are in one of the first so many, by its key
	// Every is how many partitions get what concerns no single row: the most that any route of the log has had. 0 is as many as
	// Partitions. So what is behind a row's former events too is there, wherever they are.
	Every int32
}

// All is how many partitions the log's routes have used.
func (t Topic) All() int32 { return max(t.Partitions, t.Every) }

// Route is everything that, beside the WAL itself, an event's topic, partition and bytes depend on. It is a record in
// the log: whoever reads the same WAL by the same routes gets the same bytes.
//
// A log has one route after the other. Each is in force for the transactions that commit at or above what its record
// reaches, up to the next one: a transaction is routed by one, whole.
type Route struct {
	Version int // of the route in this log, from 1
	Source  Source
	System  Topic  // retention's own deletes
	User    Topic  // everybody else's, and the unverified
	Log     Topic  // one partition
	Format  string // of events and markers, such as FormatSpanner
	HashKey string // fingerprint of the key that long key values are hashed with
}

// The parts of a route that have one value only so far. They are written into the log, so that a later auditor knows.
const (
	partitioner = "murmur2"
	eventValues = "keys"
)

// maxPartitions is more than a cluster takes of one topic. The number decides how much memory is taken.
const maxPartitions = 100_000

// Validate says why events cannot be routed like this.
func (r *Route) Validate() error {
	switch {
	case r.System.Name == "" || r.User.Name == "" || r.Log.Name == "":
		return errors.New("name a topic for each of system, user and log: topics: in lapse.yaml")
	case r.System.Name == r.User.Name || r.System.Name == r.Log.Name || r.User.Name == r.Log.Name:
		return errors.New("system, user and log must be three topics")
	case r.System.Partitions < 1 || r.User.Partitions < 1:
		return errors.New("a topic needs at least one partition")
	case r.System.All() > maxPartitions || r.User.All() > maxPartitions:
		return fmt.Errorf("a topic may have %d partitions at most", maxPartitions)
	case r.Log.Partitions != 1:
		return fmt.Errorf("topic %s is the log and must have one partition, not %d", r.Log.Name, r.Log.Partitions)
	case formats[r.Format] == nil:
		return fmt.Errorf("format %q is none of %s", r.Format, strings.Join(formatNames(), ", "))
	case r.HashKey == "":
		return errors.New("name the key that long key values are hashed with")
	default:
		return nil
	}
}

// Follow makes r the route that follows former in its log, or former itself if nothing is different, and reports whether
// something is. What concerns no single row goes on going into every partition that former used.
func (r *Route) Follow(former *Route) (changed bool) {
	r.System.Every, r.User.Every = max(r.System.All(), former.System.All()), max(r.User.All(), former.User.All())
	r.Version = former.Version
	if r.Fingerprint() == former.Fingerprint() {
		return false
	}
	r.Version++
	return true
}

// Fingerprint names the route's content. It is in every record of the log, so that the last one says by which route the
// events before it were routed.
func (r *Route) Fingerprint() string { return schemas.Fingerprint(r.appendRouting(nil)) }

// appendRouting writes the route's content, without its version and place.
func (r *Route) appendRouting(dst []byte) []byte {
	dst = appendSource(append(dst, '{'), &r.Source, TextFormOf(r.Source.Encoding))
	dst = appendText(append(dst, `,"slot":`...), r.Source.Slot, UTF8Text)
	dst = append(dst, `,"topics":{"system":`...)
	dst = appendTopic(dst, r.System)
	dst = appendTopic(append(dst, `,"user":`...), r.User)
	dst = appendTopic(append(dst, `,"log":`...), r.Log)
	dst = appendText(append(dst, `},"partitioner":`...), partitioner, UTF8Text)
	dst = appendText(append(dst, `,"format":`...), r.Format, UTF8Text)
	dst = appendText(append(dst, `,"values":`...), eventValues, UTF8Text)
	dst = appendText(append(dst, `,"hash_key":`...), r.HashKey, UTF8Text)
	return append(appendUint(append(dst, `,"event_schema":`...), EventSchema), '}')
}

func appendTopic(dst []byte, t Topic) []byte {
	dst = appendText(append(dst, `{"name":`...), t.Name, UTF8Text)
	dst = appendUint(append(dst, `,"partitions":`...), uint64(t.Partitions))
	if t.Every > t.Partitions {
		dst = appendUint(append(dst, `,"every":`...), uint64(t.Every))
	}
	return append(dst, '}')
}

// RouteContent is the record of a route, which is in force for all transactions that commit at or above what the record
// reaches.
type RouteContent struct {
	Route *Route // nil in a record that was read: see LogRecord.Routing
	At    time.Time

	routing []byte // as it was read
}

// Kind is KindRoute.
func (*RouteContent) Kind() Kind                               { return KindRoute }
func (c *RouteContent) written() time.Time                     { return c.At }
func (*RouteContent) read() (*Heartbeat, replication.Ancestry) { return nil, nil }

func (c *RouteContent) append(b []byte, _ TextForm) []byte {
	b = append(b, `,"routing":`...)
	if c.Route == nil {
		return append(b, c.routing...)
	}
	return c.Route.appendRouting(b)
}

// parse keeps the bytes. They are read when somebody needs the route, since one that cannot be read is refused by name.
func (c *RouteContent) parse(record []byte, _ TextForm) error {
	var j struct {
		Routing json.RawMessage `json:"routing"`
	}
	err := json.Unmarshal(record, &j)
	c.routing = j.Routing
	return err
}

// routingJSON is a route's content as appendRouting writes it.
type routingJSON struct {
	SystemIdentifier string `json:"system_identifier"`
	Database         string `json:"database"`
	DatabaseOID      uint32 `json:"database_oid"`
	Encoding         string `json:"encoding"`
	Slot             string `json:"slot"`
	Topics           struct {
		System topicJSON `json:"system"`
		User   topicJSON `json:"user"`
		Log    topicJSON `json:"log"`
	} `json:"topics"`
	Format  string `json:"format"`
	HashKey string `json:"hash_key"`
}

type topicJSON struct {
	Name       string `json:"name"`
	Partitions int32  `json:"partitions"`
	Every      int32  `json:"every"`
}

// Routing is the route that a record of the log is of, which must be a KindRoute. A record whose content is not what its
// fingerprint says, and one that this program would not have written, are errors.
func (r *LogRecord) Routing() (*Route, error) {
	c, is := r.Content.(*RouteContent)
	if !is {
		return nil, fmt.Errorf("it is of kind %s", r.Kind)
	}
	if got := schemas.Fingerprint(c.routing); got != r.Route {
		return nil, fmt.Errorf("its content has fingerprint %s, and not %s as it says", got, r.Route)
	}
	var j routingJSON
	if err := json.Unmarshal(c.routing, &j); err != nil {
		return nil, fmt.Errorf("its content cannot be read: %w", err)
	}
	route := &Route{
		Version: r.RouteVersion,
		Source: Source{
			SystemIdentifier: r.SystemIdentifier, DatabaseOID: r.DatabaseOID, Database: j.Database, Encoding: cmp.Or(j.Encoding, "UTF8"), Slot: j.Slot,
		},
		System: Topic(j.Topics.System), User: Topic(j.Topics.User), Log: Topic(j.Topics.Log), Format: j.Format, HashKey: j.HashKey,
	}
	if TextFormOf(route.Source.Encoding) == RawText {
		route.Source.Database = string(DecodeText(j.Database))
	}
	if err := route.Validate(); err != nil {
		return nil, fmt.Errorf("no route is like that: %w", err)
	}
	if route.Version < 1 || !bytes.Equal(route.appendRouting(nil), c.routing) {
		return nil, errors.New("another version of lapse has written it, and this one would route otherwise")
	}
	return route, nil
}
