package verify

import (
	"fmt"

	"lapse/audit/evidence"
)

// Log checks that the log begins as it must and only goes forward: an origin and a route first, every record after the one before it, and
// all records of a transaction one after the other.
type Log struct {
	Broken func(what string)
	Within bool // the log is read from some record on, which is accepted as it is

	read   int
	former *evidence.LogRecord
}

// Next checks a record against those before it. Call it once for each record, in the log's order.
func (l *Log) Next(r *evidence.LogRecord) {
	number, former := l.read, l.former
	l.read, l.former = l.read+1, r
	switch {
	case number == 0 && l.Within:
		l.read = 2 // as if origin and route had been read
		return
	case number == 0:
		if r.Kind != evidence.KindOrigin {
			l.broken("the log begins with a record of kind %s", r.Kind)
		}
		return
	case number == 1 && r.Kind != evidence.KindRoute:
		l.broken("after its origin the log has a record of kind %s", r.Kind)
	case r.Kind == evidence.KindOrigin:
		l.broken("record %d is another %s", number, r.Kind)
	}
	if r.LogPosition.Compare(former.LogPosition) <= 0 {
		l.broken("record %d is at %s, after one at %s", number, r.LogPosition, former.LogPosition)
	}
	sameEnd := r.Reach == former.Reach
	if number > 1 && sameEnd != (former.More || r.Kind == evidence.KindRoute) || sameEnd && r.Seq != former.Seq+1 {
		l.broken("record %d is at %s, after one at %s that has another after it: %v", number, r.LogPosition, former.LogPosition, former.More)
	}
}

// End checks that nothing is missing after the last record.
func (l *Log) End() {
	switch {
	case l.Within && l.read == 0:
	case l.read < 2:
		l.broken("the log of %d records does not begin with origin and route", l.read)
	case l.former.More:
		l.broken("the log ends at %s, with another record to come", l.former.LogPosition)
	}
}

func (l *Log) broken(format string, args ...any) { l.Broken(fmt.Sprintf(format, args...)) }
