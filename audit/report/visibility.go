package report

import (
	"strconv"
	"strings"
	"time"
)

// visibility is a PostgreSQL snapshot: it says which transactions are visible.
type visibility struct {
	xmin, xmax uint64
	running    map[uint32]bool // transactions between min and max that are not visible
	ok         bool
}

// newVisibility parses the text of a pg_snapshot: xmin:xmax:xip,xip.
func newVisibility(text string) (v visibility) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return v
	}
	var err1, err2 error
	v.xmin, err1 = strconv.ParseUint(parts[0], 10, 64)
	v.xmax, err2 = strconv.ParseUint(parts[1], 10, 64)
	if err1 != nil || err2 != nil || v.xmin > v.xmax {
		return visibility{}
	}
	v.running = map[uint32]bool{}
	for _, xip := range strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' }) {
		x, err := strconv.ParseUint(xip, 10, 64)
		if err != nil {
			return visibility{}
		}
		v.running[uint32(x)] = true
	}
	v.ok = true
	return v
}

// longestCommit is longer than a transaction takes from its commit record until it becomes visible, even if it waits for a synchronous standby.
// It is shorter than 2^31 transactions take, after which transaction numbers repeat.
const longestCommit = 24 * time.Hour

// sees reports whether the count saw a transaction. The log has the transaction's number without epoch.
func (s *snapshot) sees(leaf int64, at time.Time, xid uint32) bool {
	switch {
	case leaf > s.taken:
		return false // it committed after the snapshot was recorded
	case at.Before(s.Begun.Time().Add(-longestCommit)):
		return true
	case int32(xid-uint32(s.seen.xmax)) >= 0:
		return false
	case int32(xid-uint32(s.seen.xmin)) < 0:
		return true
	}
	return !s.seen.running[xid]
}
