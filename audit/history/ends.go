package history

import (
	"encoding/json"
	"fmt"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/schemas"
)

// EndsNote is the value of a fence that says where partitions end.
type EndsNote struct {
	All      bool      `json:"all,omitempty"` // of every partition
	Events   string    `json:"events"`        // no event in the topics is above this reach, which has the form of lapse.history
	Producer int64     `json:"producer"`
	System   []EndNote `json:"system,omitempty"`
	User     []EndNote `json:"user,omitempty"`
}

// EndNote is a partition, the offset after its last acknowledged batch, and the epoch of that batch.
type EndNote [3]int64

// Value returns the note as the fence's value.
func (n *EndsNote) Value() []byte {
	value, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("write numbers as JSON: %v", err)) // numbers cannot fail
	}
	return value
}

// foundEnds are the ends that a start finds when it reads the log back.
type foundEnds struct {
	all bool                           // complete: earlier fences say nothing new
	by  map[string]map[int32]store.End // by topic and partition; nil if the log says nothing
}

// take reads a record of the log. If several name a partition, the one with the highest epoch and offset counts, because somebody may have copied an
// old one after it. With below it takes only notes that were written when no event above that was in the topics.
func (f *foundEnds) take(rec *schemas.Record, route *evidence.Route, below *evidence.LogRecord) {
	if f.all || !rec.IsFence() || len(rec.Value) == 0 {
		return
	}
	var note EndsNote
	if json.Unmarshal(rec.Value, &note) != nil {
		return
	}
	if events, err := evidence.ParseReach(note.Events); err != nil || below != nil && !events.Before(below.Reach) {
		return
	}
	if f.by == nil {
		f.by = map[string]map[int32]store.End{route.System.Name: {}, route.User.Name: {}}
	}
	for topic, said := range map[string][]EndNote{route.System.Name: note.System, route.User.Name: note.User} {
		for _, s := range said {
			partition, end := int32(s[0]), store.End{Offset: s[1], Producer: note.Producer, Epoch: int32(s[2])}
			known, there := f.by[topic][partition]
			newer := known.Producer == end.Producer && (known.Epoch < end.Epoch || known.Epoch == end.Epoch && known.Offset < end.Offset)
			if !there || newer {
				f.by[topic][partition] = end
			}
		}
	}
	f.all = note.All
}
