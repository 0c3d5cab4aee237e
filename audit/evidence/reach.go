package evidence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"lapse/replication"
	"lapse/schemas"
)

// Reach is a point in the past of one database: everything that ends at or below it is done.
type Reach struct {
	History  schemas.History
	Timeline schemas.Timeline
	LSN      schemas.LSN
}

// Compare orders reaches as positions are ordered.
func (r Reach) Compare(other Reach) int {
	return cmp.Or(
		cmp.Compare(r.History, other.History),
		cmp.Compare(r.Timeline, other.Timeline),
		cmp.Compare(r.LSN, other.LSN),
	)
}

// Before reports whether r comes before other.
func (r Reach) Before(other Reach) bool { return r.Compare(other) < 0 }

// Passed reports whether a transaction with this commit position is recorded. A commit is below its own end and above every earlier end, so
// its position decides as well as its end, and is known at its beginning.
func (r Reach) Passed(tx *replication.Tx) bool {
	return Reach{History: tx.History, Timeline: tx.Timeline, LSN: tx.CommitLSN}.Before(r)
}

// Below compares places in the server's log, whatever the history: whether r is below other.
func (r Reach) Below(other Reach) bool {
	r.History, other.History = 0, 0
	return r.Before(other)
}

// ReachOf is the reach of the commit of a change's transaction.
func ReachOf(p replication.Position) Reach {
	return Reach{History: p.History, Timeline: p.Timeline, LSN: p.Commit}
}

// String writes the reach as history, timeline and position, "1/1/0/19C2A40". It is how lapse.history has the end of a log.
func (r Reach) String() string { return fmt.Sprintf("%d/%d/%s", r.History, r.Timeline, r.LSN) }

// ParseReach reads what String writes.
func ParseReach(text string) (Reach, error) {
	history, rest, ok1 := strings.Cut(text, "/")
	timeline, lsn, ok2 := strings.Cut(rest, "/")
	if !ok1 || !ok2 {
		return Reach{}, fmt.Errorf("read reach %q: want history, timeline and position, such as 1/1/0/19C2A40", text)
	}
	h, err1 := strconv.ParseUint(history, 10, 32)
	tl, err2 := strconv.ParseUint(timeline, 10, 32)
	at, err3 := schemas.ParseLSN(lsn)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return Reach{}, fmt.Errorf("read reach %q: %w", text, err)
		}
	}
	return Reach{History: schemas.History(h), Timeline: schemas.Timeline(tl), LSN: at}, nil
}

// EndOf is the reach of a transaction's record.
func EndOf(tx *replication.Tx) Reach {
	return Reach{History: tx.History, Timeline: tx.Timeline, LSN: tx.EndLSN}
}

// appendReach writes a reach as a JSON object.
func appendReach(dst []byte, r Reach) []byte {
	dst = appendUint(append(dst, `{"history":`...), uint64(r.History))
	dst = appendUint(append(dst, `,"timeline":`...), uint64(r.Timeline))
	return append(appendLSN(append(dst, `,"lsn":`...), r.LSN), '}')
}

// UnmarshalJSON reads what appendReach writes.
func (r *Reach) UnmarshalJSON(text []byte) error {
	var j struct {
		History  schemas.History  `json:"history"`
		Timeline schemas.Timeline `json:"timeline"`
		LSN      string           `json:"lsn"`
	}
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	at, err := schemas.ParseLSN(j.LSN)
	*r = Reach{History: j.History, Timeline: j.Timeline, LSN: at}
	return err
}
