package evidence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"lapse/replication"
	"lapse/schemas"
)

// The headers of every event, in this order. A header that does not apply is present and empty, so that filters need no second case. A
// record of the log has some of them.
const (
	HeaderCause    = "lapse-cause"
	HeaderPolicy   = "lapse-policy"
	HeaderTable    = "lapse-table"
	HeaderCascade  = "lapse-cascade"
	HeaderRun      = "lapse-run"
	HeaderXID      = "lapse-xid"
	HeaderLSN      = "lapse-lsn"
	HeaderSeq      = "lapse-seq"
	HeaderSystem   = "lapse-sysid"
	HeaderDatabase = "lapse-db"
	HeaderHistory  = "lapse-history"
	HeaderTimeline = "lapse-tli"
	HeaderSchema   = "lapse-schema"
	HeaderRoot     = "lapse-root" // of a partition; empty for any other table
)

// HeaderProcess is in a fence: the process that wrote it.
const HeaderProcess = "lapse-process"

// headerSeqAt is the index of HeaderSeq in headerNames.
const headerSeqAt = 8

var headerNames = [...]string{
	HeaderCause, schemas.HeaderOp, HeaderPolicy, HeaderTable, HeaderCascade, HeaderRun, HeaderXID, HeaderLSN, HeaderSeq,
	HeaderSystem, HeaderDatabase, HeaderHistory, HeaderTimeline, HeaderSchema, HeaderRoot,
}

// ErrNoEvent says that a record is not an event of this program.
var ErrNoEvent = errors.New("the record is no event that this program knows")

// EventPosition reads an event's position from its headers. All events of one database are in the order of their positions
// (replication.Position.Compare), in every partition. Its error is ErrNoEvent.
func EventPosition(rec *schemas.Record) (replication.Position, error) {
	history, err1 := strconv.ParseUint(rec.Header(HeaderHistory), 10, 30) // far above real values, and far below the catalog's limit
	timeline, err2 := strconv.ParseUint(rec.Header(HeaderTimeline), 10, 32)
	commit, err3 := parseHex(rec.Header(HeaderLSN), 8)
	ordinal, err4 := parseHex(rec.Header(HeaderSeq), 4)
	if errors.Join(err1, err2, err3, err4) != nil || rec.Header(HeaderSchema) != strconv.Itoa(EventSchema) ||
		rec.Header(HeaderSystem) == "" || rec.Header(HeaderDatabase) == "" {
		return replication.Position{}, fmt.Errorf("%s/%d: %w", rec.Topic, rec.Partition, ErrNoEvent)
	}
	return replication.Position{
		History: schemas.History(history), Timeline: schemas.Timeline(timeline), Commit: schemas.LSN(commit),
		Ordinal: uint32(ordinal),
	}, nil
}

// PositionHeaders are the headers of a record that is no event, at an event's position.
func PositionHeaders(source *Source, op string, at replication.Position) []schemas.Header {
	return []schemas.Header{
		{Key: schemas.HeaderOp, Value: []byte(op)},
		{Key: HeaderLSN, Value: appendHex(nil, uint64(at.Commit), 16)},
		{Key: HeaderSeq, Value: appendHex(nil, uint64(at.Ordinal), 8)},
		{Key: HeaderSystem, Value: appendUint(nil, source.SystemIdentifier)},
		{Key: HeaderDatabase, Value: appendUint(nil, uint64(source.DatabaseOID))},
		{Key: HeaderHistory, Value: appendUint(nil, uint64(at.History))},
		{Key: HeaderTimeline, Value: appendUint(nil, uint64(at.Timeline))},
		{Key: HeaderSchema, Value: appendUint(nil, EventSchema)},
	}
}

// Of reports whether a record's headers name this database.
func (s *Source) Of(rec *schemas.Record) bool {
	return rec.Header(HeaderSystem) == strconv.FormatUint(s.SystemIdentifier, 10) &&
		rec.Header(HeaderDatabase) == strconv.FormatUint(uint64(s.DatabaseOID), 10)
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
