package evidence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// LogRecord is a log record as read.
type LogRecord struct {
	Kind             Kind
	SystemIdentifier uint64
	DatabaseOID      uint32
	Database         string // as written, in the form of the database's encoding
	Route            string // the route's fingerprint
	RouteVersion     int
	LogPosition
	More  bool      // the transaction has another record after it
	Nonce uuid.UUID // the history's
	Beat  uuid.UUID // the last heartbeat before it; zero for none

	// Content is one of the types that LogWriter writes. For a kind that this program does not know it is a *CoverageContent with those of its
	// members that the record has.
	Content Content

	// Members of several kinds.
	Heartbeat *Heartbeat           // a heartbeat record's; otherwise nil
	Ancestry  replication.Ancestry // nil if the record has none
	Time      time.Time            // the commit time of a transaction, otherwise when the record was made; zero for origin and route
}

// LogRecordIn parses a log record of any kind. It returns nil for a fence, and for what another program wrote.
func LogRecordIn(rec *schemas.Record) *LogRecord {
	if rec.IsFence() || rec.Header(schemas.HeaderOp) == "" {
		return nil
	}
	record, err := ParseLogRecord(rec.Value)
	if err != nil {
		return nil
	}
	return record
}

// ParseLogRecord parses a log record of any kind.
func ParseLogRecord(value []byte) (*LogRecord, error) {
	if head, content := scanTransaction(value); head != nil && head.Schema == LogSchema {
		if r, err := head.record(); err == nil {
			r.Content, r.Time = content, content.written()
			return r, nil
		}
	}
	return parseLogRecord(value)
}

// parseLogRecord parses any record.
func parseLogRecord(value []byte) (*LogRecord, error) {
	var head recordJSON
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, fmt.Errorf("read a record of the log: %w", err)
	}
	if head.Schema != LogSchema {
		return nil, fmt.Errorf("read a record of the log: its format is %d, this program knows %d", head.Schema, LogSchema)
	}
	r, err := head.record()
	if err == nil {
		r.Content = head.content()
		err = r.Content.parse(value, TextFormOf(cmp.Or(head.Encoding, "UTF8")))
	}
	if err != nil {
		return nil, fmt.Errorf("read a record of the log: %w", err)
	}
	r.Heartbeat, r.Ancestry = r.Content.read()
	r.Time = r.Content.written()
	return r, nil
}

// recordJSON has the members that LogWriter.Write writes into every record.
type recordJSON struct {
	Kind             Kind      `json:"kind"`
	Schema           int       `json:"schema"`
	SystemIdentifier string    `json:"system_identifier"`
	Database         string    `json:"database"`
	DatabaseOID      uint32    `json:"database_oid"`
	Encoding         string    `json:"encoding"` // UTF8 if absent
	RouteVersion     int       `json:"route_version"`
	Route            string    `json:"route"`
	History          uint32    `json:"history"`
	Nonce            uuid.UUID `json:"nonce"`
	Timeline         uint32    `json:"timeline"`
	Reached          string    `json:"reached"`
	Seq              uint32    `json:"seq"`  // 0 if absent, as in records of former versions
	More             bool      `json:"more"` // false if absent
	Beat             uuid.UUID `json:"beat"`

	Tables json.RawMessage `json:"tables"` // a tablesContent's
}

// content makes an empty content of the record's kind.
func (head *recordJSON) content() Content {
	switch head.Kind {
	case KindOrigin:
		return &OriginContent{}
	case KindRoute:
		return &RouteContent{}
	case KindTransaction:
		return &TransactionContent{}
	case KindDrop:
		return &DropContent{}
	case KindPolicy:
		return &PolicyContent{}
	case KindHold:
		return &HoldContent{}
	case KindSnapshot:
		return &SnapshotContent{}
	case KindQuarantine:
		return &QuarantineContent{}
	case KindGap:
		return &MarkerContent{Marker: &Marker{Op: Gap}}
	case KindRewind:
		return &MarkerContent{Marker: &Marker{Op: Rewind}}
	}
	if head.Kind == KindCoverage && head.Tables != nil {
		return &tablesContent{}
	}
	return &CoverageContent{}
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
	return &LogRecord{
		Kind: head.Kind, SystemIdentifier: system, DatabaseOID: head.DatabaseOID, Database: head.Database,
		Route: head.Route, RouteVersion: head.RouteVersion, LogPosition: LogPosition{Reach: reach, Seq: head.Seq}, More: head.More,
		Nonce: head.Nonce, Beat: head.Beat,
	}, nil
}
