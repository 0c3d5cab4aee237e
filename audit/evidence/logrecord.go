package evidence

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// LogRecord is what a record of the log says, as far as a start looks at it.
type LogRecord struct {
	Kind             Kind
	SystemIdentifier uint64
	DatabaseOID      uint32
	Database         string // as it was written, in the form of the database's encoding
	Route            string // fingerprint
	RouteVersion     int
	LogPosition
	More  bool      // the transaction has another record behind it
	Nonce uuid.UUID // of the history
	Beat  uuid.UUID // the last heartbeat before it; zero for none

	// Of a transaction.
	XID        uint32
	CommitLSN  schemas.LSN
	CommitTime time.Time
	Events     map[string]uint64 // by cause

	Heartbeat *Heartbeat           // of the record of a heartbeat; nil for none
	Ancestry  replication.Ancestry // of a coverage record; nil where the record says nothing of it
	Time      time.Time            // of a transaction its commit, of others when they came to be; zero for origin and route
	Keys      map[string][]string  // of an origin: fingerprints by use

	From, To Reach // of a gap or a rewind

	routing []byte // of a route: see Routing
}

// ParseLogRecord reads a record of the log, of whatever kind.
func ParseLogRecord(value []byte) (*LogRecord, error) {
	var head recordJSON
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, fmt.Errorf("read a record of the log: %w", err)
	}
	if head.Schema != LogSchema {
		return nil, fmt.Errorf("read a record of the log: its format is %d, this program knows %d", head.Schema, LogSchema)
	}
	r, err := head.record()
	if err != nil {
		return nil, fmt.Errorf("read a record of the log: %w", err)
	}
	return r, nil
}

type recordJSON struct {
	Kind             Kind      `json:"kind"`
	Schema           int       `json:"schema"`
	SystemIdentifier string    `json:"system_identifier"`
	Database         string    `json:"database"`
	DatabaseOID      uint32    `json:"database_oid"`
	RouteVersion     int       `json:"route_version"`
	Route            string    `json:"route"`
	History          uint32    `json:"history"`
	Nonce            uuid.UUID `json:"nonce"`
	Timeline         uint32    `json:"timeline"`
	Reached          string    `json:"reached"`
	Seq              uint32    `json:"seq"`  // absent in records of former versions: 0
	More             bool      `json:"more"` // absent: the last of its transaction
	Beat             uuid.UUID `json:"beat"`

	CommitLSN  string    `json:"commit_lsn"`
	CommitTime time.Time `json:"commit_timestamp"`
	XID        uint32    `json:"xid"`
	Observed   []struct {
		Cause  string `json:"cause"`
		Events uint64 `json:"events"`
	} `json:"observed"`
	Others []struct {
		Cause  string `json:"cause"`
		Events uint64 `json:"events"`
	} `json:"others"`

	Heartbeat *heartbeatJSON `json:"heartbeat"`
	Ancestry  []struct {
		Timeline uint32 `json:"timeline"`
		End      string `json:"end"`
	} `json:"ancestry"`
	At   time.Time `json:"at"`
	Keys []struct {
		Use         string `json:"use"`
		Fingerprint string `json:"fingerprint"`
	} `json:"keys"`
	From Reach `json:"from"`
	To   Reach `json:"to"`

	Routing json.RawMessage `json:"routing"`
}

func (head *recordJSON) record() (*LogRecord, error) {
	system, err := strconv.ParseUint(head.SystemIdentifier, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("system identifier: %w", err)
	}
	reached, err := schemas.ParseLSN(head.Reached)
	if err != nil {
		return nil, err
	}
	reach := Reach{History: schemas.History(head.History), Timeline: schemas.Timeline(head.Timeline), LSN: reached}
	r := &LogRecord{
		Kind: head.Kind, SystemIdentifier: system, DatabaseOID: head.DatabaseOID, Database: head.Database,
		Route: head.Route, RouteVersion: head.RouteVersion, LogPosition: LogPosition{Reach: reach, Seq: head.Seq}, More: head.More, Nonce: head.Nonce, Beat: head.Beat,
		XID: head.XID, CommitTime: head.CommitTime, Time: head.CommitTime, From: head.From, To: head.To, routing: head.Routing,
	}
	if head.At.After(r.Time) {
		r.Time = head.At
	}
	if head.CommitLSN != "" {
		if r.CommitLSN, err = schemas.ParseLSN(head.CommitLSN); err != nil {
			return nil, err
		}
	}
	if head.Kind == KindTransaction {
		r.Events = map[string]uint64{}
		for _, o := range head.Observed {
			r.Events[o.Cause] += o.Events
		}
		for _, o := range head.Others {
			r.Events[o.Cause] += o.Events
		}
	}
	if head.Heartbeat != nil {
		r.Heartbeat = head.Heartbeat.heartbeat()
	}
	if head.Ancestry != nil {
		r.Ancestry = replication.Ancestry{}
	}
	for _, s := range head.Ancestry {
		at, err := schemas.ParseLSN(s.End)
		if err != nil {
			return nil, err
		}
		r.Ancestry = append(r.Ancestry, replication.Switch{Timeline: schemas.Timeline(s.Timeline), At: at})
	}
	for _, k := range head.Keys {
		if r.Keys == nil {
			r.Keys = map[string][]string{}
		}
		r.Keys[k.Use] = append(r.Keys[k.Use], k.Fingerprint)
	}
	return r, nil
}
