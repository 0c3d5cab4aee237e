package evidence

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// SnapshotContent is the record of one of the three rows of a count of due rows: before its snapshot was taken, with the snapshot, and with
// the counts.
type SnapshotContent struct {
	Committed
	Snapshot   uuid.UUID // identifies its three records
	Step       string
	PolicyID   int64
	Policy     string
	Version    int64
	At         time.Time
	By         string
	Seen       string // the snapshot, as PostgreSQL writes it
	Cutoff     time.Time
	Counted    *DueCounts // nil: this record has no count
	NotCounted string     // why
}

// DueCounts are what an executor counted.
type DueCounts struct {
	Due         int64 `json:"due"`
	Overdue     int64 `json:"overdue"`
	Held        int64 `json:"held"`
	Quarantined int64 `json:"quarantined"`
	// OldestOver is the step that the lateness of the oldest due row exceeds, one of schemas.LatenessSteps or 0; nil if nothing was due, or if that is
	// not known.
	OldestOver *int64 `json:"oldest_over"`
}

// maxSeen bounds the length of a snapshot: more than three thousand concurrent transactions. A record must not be longer than MaxRecord,
// and anyone with the executor's login can publish a snapshot of any length. A report does not trust a count without it.
const maxSeen = 40_000

// readSnapshot reads a row of lapse.snapshot.
func readSnapshot(change *replication.Change) *SnapshotContent {
	c := columnsOf(change.Relation, change.New, nil)
	s := &SnapshotContent{
		Step: cut(c("step")), PolicyID: numberOf(c("policy_id")), Policy: cut(c("policy")), Version: numberOf(c("version")), At: timeOf(c("at")), By: cut(c("by")),
		Seen: c("seen"), Cutoff: timeOf(c("cutoff")), NotCounted: cut(c("not_counted")),
	}
	if len(s.Seen) > maxSeen {
		s.Seen = ""
	}
	parseUUID(c("snapshot"), &s.Snapshot)
	if c("due") != "" {
		s.Counted = &DueCounts{Due: numberOf(c("due")), Overdue: numberOf(c("overdue")), Held: numberOf(c("held")), Quarantined: numberOf(c("quarantined"))}
		if over := numberOf(c("oldest_over")); c("oldest_over") == "0" || slices.Contains(schemas.LatenessSteps[:], over) {
			s.Counted.OldestOver = &over // what is no step nobody counted
		}
	}
	return s
}

// Kind is KindSnapshot.
func (*SnapshotContent) Kind() Kind { return KindSnapshot }

func (s *SnapshotContent) append(b []byte, form TextForm) []byte {
	o := object{appendUUID(append(s.Committed.append(b), `,"snapshot":`...), s.Snapshot), form}
	o.text("step", s.Step)
	o.number("policy_id", s.PolicyID)
	o.text("policy", s.Policy)
	o.number("version", s.Version)
	o.instant("at", s.At)
	o.text("by", s.By)
	o.text("seen", s.Seen)
	o.instant("cutoff", s.Cutoff)
	if n := s.Counted; n != nil {
		o.b = appendInt(append(o.b, `,"counted":{"due":`...), n.Due)
		o.b = appendInt(append(o.b, `,"overdue":`...), n.Overdue)
		o.b = appendInt(append(o.b, `,"held":`...), n.Held)
		o.b = appendInt(append(o.b, `,"quarantined":`...), n.Quarantined)
		if n.OldestOver != nil {
			o.b = appendInt(append(o.b, `,"oldest_over":`...), *n.OldestOver)
		}
		o.b = append(o.b, '}')
	}
	o.text("not_counted", s.NotCounted)
	return o.b
}

func (s *SnapshotContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Snapshot   uuid.UUID  `json:"snapshot"`
		Step       string     `json:"step"`
		PolicyID   int64      `json:"policy_id"`
		Policy     string     `json:"policy"`
		Version    int64      `json:"version"`
		At         time.Time  `json:"at"`
		By         string     `json:"by"`
		Seen       string     `json:"seen"`
		Cutoff     time.Time  `json:"cutoff"`
		Counted    *DueCounts `json:"counted"`
		NotCounted string     `json:"not_counted"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	*s = SnapshotContent{
		Snapshot: j.Snapshot, Step: form.decode(j.Step), PolicyID: j.PolicyID, Policy: form.decode(j.Policy), Version: j.Version, At: j.At,
		By: form.decode(j.By), Seen: form.decode(j.Seen), Cutoff: j.Cutoff, Counted: j.Counted, NotCounted: form.decode(j.NotCounted),
	}
	s.Committed, err = j.committed()
	return err
}
