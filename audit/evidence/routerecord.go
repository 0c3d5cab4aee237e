package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// RouteContent is the record of a route. The route is in force for all transactions that commit at or above the record's reach.
type RouteContent struct {
	Route *Route // nil in a record that was read: see LogRecord.Routing
	At    time.Time
	// Rotation is the signed note with which the log's key hands the log over to the route's key; empty if that is the same.
	Rotation string

	routing []byte // as it was read
}

// Kind is KindRoute.
func (*RouteContent) Kind() Kind                               { return KindRoute }
func (c *RouteContent) written() time.Time                     { return c.At }
func (*RouteContent) read() (*Heartbeat, replication.Ancestry) { return nil, nil }

func (c *RouteContent) append(b []byte, _ TextForm) []byte {
	b = append(b, `,"routing":`...)
	if c.Route == nil {
		b = append(b, c.routing...)
	} else {
		b = c.Route.appendRouting(b)
	}
	if c.Rotation != "" {
		b = appendText(append(b, `,"rotation":`...), c.Rotation, UTF8Text)
	}
	return b
}

// parse keeps the bytes. They are only read if the route is needed, so that an unreadable one can be refused by name.
func (c *RouteContent) parse(record []byte, _ TextForm) error {
	var j struct {
		Routing  json.RawMessage `json:"routing"`
		Rotation string          `json:"rotation"`
	}
	err := json.Unmarshal(record, &j)
	c.routing, c.Rotation = j.Routing, j.Rotation
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

	PublicKey string        `json:"public_key"` // absent in routes of former versions
	RowsKeys  []rowsKeyJSON `json:"rows_keys"`
}

type rowsKeyJSON struct {
	Epoch       schemas.Epoch `json:"epoch"`
	Fingerprint string        `json:"fingerprint"` // absent: destroyed
}

type topicJSON struct {
	Name       string `json:"name"`
	Partitions int32  `json:"partitions"`
	Every      int32  `json:"every"`
}

// Routing returns the route of a log record of KindRoute. It returns an error if the content does not match its fingerprint, or if this
// program would not have written it.
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
		PublicKey: j.PublicKey,
	}
	for _, key := range j.RowsKeys {
		route.RowsKeys = append(route.RowsKeys, RowsKey(key))
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
