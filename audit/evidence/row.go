package evidence

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// Rows of the catalog's own tables, column by column, as PostgreSQL writes values.

// maxLedgerColumn is more than a deletion function writes into a column: longer values are not read.
const maxLedgerColumn = 1 << 20

// textOf copies column i of a row, because the row points into the receive buffer.
func textOf(row []replication.Value, i int) (text string, sent bool) {
	if i >= len(row) || row[i].Kind != replication.Text || len(row[i].Bytes) > maxLedgerColumn {
		return "", false
	}
	return string(row[i].Bytes), true
}

func parseUint[N ~uint64](s string, bits int, to *N) bool {
	n, err := strconv.ParseUint(s, 10, bits)
	*to = N(n)
	return err == nil
}

func parseUint32[N ~uint32](s string, to *N) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	*to = N(n)
	return err == nil
}

func parseInt32[N ~int32](s string, to *N) bool {
	n, err := strconv.ParseInt(s, 10, 32)
	*to = N(n)
	return err == nil
}

func parseInt64[N ~int64](s string, to *N) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	*to = N(n)
	return err == nil
}

func parseUUID(s string, to *uuid.UUID) bool {
	if len(s) != 36 {
		return false
	}
	id, err := uuid.Parse(s)
	*to = id
	return err == nil
}

// parseInstant reads a timestamptz in the form of the stream's session: ISO, whole hours from UTC, at most microseconds. A deletion
// function never writes infinity or years before Christ.
func parseInstant(s string, to *time.Time) bool {
	t, err := time.Parse("2006-01-02 15:04:05-07", s)
	if err != nil || t.Nanosecond()%1000 != 0 {
		return false
	}
	*to = t.UTC()
	return true
}

func parseBytes(s string) ([]byte, bool) {
	digits, isHex := strings.CutPrefix(s, `\x`)
	if !isHex {
		return nil, false
	}
	b, err := hex.DecodeString(digits)
	return b, err == nil
}

func parseDigest(s string, to *schemas.Digest) bool {
	b, ok := parseBytes(s)
	return ok && copy(to[:], b) == len(to) && len(b) == len(to)
}

func parseOIDs(s string, to *[]uint32) bool {
	inner, ok := strings.CutPrefix(s, "{")
	if !ok {
		return false
	}
	if inner, ok = strings.CutSuffix(inner, "}"); !ok {
		return false
	}
	if inner == "" {
		*to = nil
		return true
	}
	var oids []uint32
	for text := range strings.SplitSeq(inner, ",") {
		var oid uint32
		if !parseUint32(text, &oid) {
			return false
		}
		oids = append(oids, oid)
	}
	*to = oids
	return true
}
