package evidence

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// LatenessSteps are the upper bounds of a histogram of lateness, in seconds. All are at least a minute, so that the lateness of a batch of one row
// reveals no more of the row's due time than the time of its deletion does.
var LatenessSteps = [...]int64{
	60, 5 * 60, 15 * 60, hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 3 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

const (
	hour = 60 * 60
	day  = 24 * hour
)

// Lateness counts deleted rows by their lateness: one count for each of LatenessSteps, and the last for rows that are later than all. A row
// that was deleted before it was due, after a clock was set back, counts as in time.
type Lateness [len(LatenessSteps) + 1]uint64

// add counts a row that was due at an instant.
func (l *Lateness) add(due, deleted time.Time) {
	late := deleted.Unix() - due.Unix() // a time.Duration overflows after 292 years
	if deleted.Nanosecond() > due.Nanosecond() {
		late++
	}
	step := 0
	for step < len(LatenessSteps) && late > LatenessSteps[step] {
		step++
	}
	l[step]++
}

// append writes it as {"60":940,"300":7,"later":1}, without steps of 0 rows; without any rows it writes nothing.
func (l *Lateness) append(b []byte) []byte {
	if *l == (Lateness{}) {
		return b
	}
	b = append(b, `,"late":{`...)
	for i, rows := range l {
		if rows == 0 {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		if i < len(LatenessSteps) {
			b = append(appendInt(append(b, '"'), LatenessSteps[i]), '"')
		} else {
			b = append(b, `"later"`...)
		}
		b = appendUint(append(b, ':'), rows)
	}
	return append(b, '}')
}

// UnmarshalJSON reads what append wrote. It ignores rows of a step that this program does not know.
func (l *Lateness) UnmarshalJSON(text []byte) error {
	var steps map[string]uint64
	if err := json.Unmarshal(text, &steps); err != nil {
		return err
	}
	*l = Lateness{}
	for name, rows := range steps {
		if name == "later" {
			l[len(LatenessSteps)] = rows
		} else if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			if i := slices.Index(LatenessSteps[:], n); i >= 0 {
				l[i] = rows
			}
		}
	}
	return nil
}
