package evidence

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"lapse/schemas"
)

// Lateness counts deleted rows by their lateness: one count for each of schemas.LatenessSteps, and the last for rows that are later than all. A row
// that was deleted before it was due, after a clock was set back, counts as in time.
type Lateness [len(schemas.LatenessSteps) + 1]uint64

// add counts a row that was due at an instant.
func (l *Lateness) add(due, deleted time.Time) {
	l[schemas.LatenessStep(due, deleted)]++
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
		if i < len(schemas.LatenessSteps) {
			b = append(appendInt(append(b, '"'), schemas.LatenessSteps[i]), '"')
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
			l[len(schemas.LatenessSteps)] = rows
		} else if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			if i := slices.Index(schemas.LatenessSteps[:], n); i >= 0 {
				l[i] = rows
			}
		}
	}
	return nil
}
