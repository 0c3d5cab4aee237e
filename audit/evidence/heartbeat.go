package evidence

import (
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// Heartbeat is a row of lapse.heartbeat, which shows that the auditor was at work. Each heartbeat names the previous one, so that a missing one is
// noticed, and the server that wrote it, so that two copies of one database can be told apart.
type Heartbeat struct {
	Nonce       uuid.UUID
	Former      uuid.UUID // zero for the first
	At          time.Time
	History     schemas.History
	Timeline    schemas.Timeline
	ServerStart time.Time
	// LookedAt is a position before the check of the publications: any change that the check missed has its commit above it. A commit
	// may be in the log long before the check can see it, so this may be a former heartbeat's position. Zero in rows of a former version.
	LookedAt  schemas.LSN
	Fault     string   // how the publications were changed; empty if they were not
	Faults    int64    // how often a change has been found, ever
	Covered   int64    // the number of the last row of lapse.covered then; zero in rows of a former version
	Unsettled bool     // policies were being changed
	Declared  Declared // set in an auditor's first heartbeat
}

var heartbeatColumns = map[string]func(*Heartbeat, string) bool{
	"nonce":        func(h *Heartbeat, s string) bool { return parseUUID(s, &h.Nonce) },
	"at":           func(h *Heartbeat, s string) bool { return parseInstant(s, &h.At) },
	"history":      func(h *Heartbeat, s string) bool { return parseUint32(s, &h.History) },
	"timeline":     func(h *Heartbeat, s string) bool { return parseUint32(s, &h.Timeline) },
	"server_start": func(h *Heartbeat, s string) bool { return parseInstant(s, &h.ServerStart) },
	"faults":       func(h *Heartbeat, s string) bool { return parseInt64(s, &h.Faults) },
}

// optionalColumns are the columns that may be NULL, or missing in rows of a former version.
var optionalColumns = map[string]func(*Heartbeat, string) bool{
	"former":    func(h *Heartbeat, s string) bool { return parseUUID(s, &h.Former) },
	"fault":     func(h *Heartbeat, s string) bool { h.Fault = s; return true },
	"unsettled": func(h *Heartbeat, s string) bool { h.Unsettled = s == "t"; return true },
	"declared":  func(h *Heartbeat, s string) bool { h.Declared = parseDeclared(s); return true },
	"covered":   func(h *Heartbeat, s string) bool { return parseInt64(s, &h.Covered) && h.Covered >= 0 },
	"looked_at": func(h *Heartbeat, s string) (ok bool) {
		at, err := schemas.ParseLSN(s)
		h.LookedAt = at
		return err == nil
	},
}

// parseHeartbeat parses a row of lapse.heartbeat; nil if it cannot.
func parseHeartbeat(change *replication.Change) *Heartbeat {
	h := &Heartbeat{}
	found := 0
	for i, column := range change.Relation.Columns {
		read, wanted := heartbeatColumns[column.Name]
		if wanted {
			found++
		} else if read = optionalColumns[column.Name]; read == nil || i < len(change.New) && change.New[i].Kind == replication.Null {
			continue
		}
		if text, sent := textOf(change.New, i); !sent || !read(h, text) {
			return nil
		}
	}
	if found != len(heartbeatColumns) {
		return nil
	}
	return h
}

// faulty reports whether, according to this heartbeat, the publications were wrong at some time since the former one. former is nil if none is
// known; it has no nonce if a heartbeat may be missing because none was to be read at that time.
func (h *Heartbeat) faulty(former *Heartbeat) bool {
	switch {
	case h.Fault != "":
		return true
	case former == nil:
		return false
	default:
		return former.Nonce != (uuid.UUID{}) && h.Former != former.Nonce || h.Faults > former.Faults || former.Fault != ""
	}
}

// appendHeartbeat writes a heartbeat as a JSON object.
func appendHeartbeat(b []byte, h *Heartbeat, form TextForm) []byte {
	b = appendUUID(append(b, `{"nonce":`...), h.Nonce)
	if h.Former != (uuid.UUID{}) {
		b = appendUUID(append(b, `,"former":`...), h.Former)
	}
	b = appendInstant(append(b, `,"at":`...), h.At)
	b = appendUint(append(b, `,"history":`...), uint64(h.History))
	b = appendUint(append(b, `,"timeline":`...), uint64(h.Timeline))
	b = appendInstant(append(b, `,"server_start":`...), h.ServerStart)
	if h.LookedAt != 0 {
		b = appendLSN(append(b, `,"looked_at":`...), h.LookedAt)
	}
	if h.Fault != "" {
		b = appendText(append(b, `,"fault":`...), h.Fault, form)
	}
	b = appendInt(append(b, `,"faults":`...), h.Faults)
	if h.Covered > 0 {
		b = appendInt(append(b, `,"covered":`...), h.Covered)
	}
	if h.Unsettled {
		b = append(b, `,"unsettled":true`...)
	}
	b = h.Declared.append(b, form)
	return append(b, '}')
}

// heartbeatJSON is what appendHeartbeat writes.
type heartbeatJSON struct {
	Nonce       uuid.UUID `json:"nonce"`
	Former      uuid.UUID `json:"former"`
	At          time.Time `json:"at"`
	History     uint32    `json:"history"`
	Timeline    uint32    `json:"timeline"`
	ServerStart time.Time `json:"server_start"`
	LookedAt    string    `json:"looked_at"`
	Fault       string    `json:"fault"`
	Faults      int64     `json:"faults"`
	Covered     int64     `json:"covered"`
	Unsettled   bool      `json:"unsettled"`
	Declared    *Declared `json:"declared"`
}

func (j *heartbeatJSON) heartbeat(form TextForm) *Heartbeat {
	if j == nil {
		return nil
	}
	h := &Heartbeat{
		Nonce: j.Nonce, Former: j.Former, At: j.At, History: schemas.History(j.History),
		Timeline: schemas.Timeline(j.Timeline), ServerStart: j.ServerStart, Fault: form.decode(j.Fault), Faults: j.Faults, Covered: j.Covered,
		Unsettled: j.Unsettled,
	}
	if j.Declared != nil {
		h.Declared = Declared{true, form.decode(j.Declared.WALArchive), form.decode(j.Declared.Backups)}
	}
	h.LookedAt, _ = schemas.ParseLSN(j.LookedAt) // zero where the record says nothing of it
	return h
}

// LastBeat is the log's last heartbeat and the reach of its record; if there is none, the log's beginning.
type LastBeat struct {
	Beat  *Heartbeat
	Reach Reach
}

// intact is the position up to which the publications are known to have been right: the position of the heartbeat's check, which is below the
// heartbeat's own end.
func (l *LastBeat) intact() Reach {
	if l.Beat == nil || l.Beat.LookedAt == 0 || l.Beat.LookedAt > l.Reach.LSN {
		return l.Reach
	}
	return Reach{History: l.Reach.History, Timeline: l.Reach.Timeline, LSN: l.Beat.LookedAt}
}
