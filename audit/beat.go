package audit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// Heartbeat is a row of lapse.heartbeat: the auditor was here. Each names the one before, so that one that was never sent
// is missed, and the server that it was written on, so that two copies of one database can be told apart.
type Heartbeat struct {
	Nonce       uuid.UUID
	Former      uuid.UUID // zero for the first
	At          time.Time
	History     schemas.History
	Timeline    schemas.Timeline
	ServerStart time.Time
	Fault       string // what was found changed in the publications; empty if nothing
	Faults      int64  // how often something was found changed, ever
}

var heartbeatColumns = map[string]func(*Heartbeat, string) bool{
	"nonce":        func(h *Heartbeat, s string) bool { return parseUUID(s, &h.Nonce) },
	"former":       func(h *Heartbeat, s string) bool { return parseUUID(s, &h.Former) },
	"at":           func(h *Heartbeat, s string) bool { return parseInstant(s, &h.At) },
	"history":      func(h *Heartbeat, s string) bool { return parseNumber(s, &h.History) },
	"timeline":     func(h *Heartbeat, s string) bool { return parseNumber(s, &h.Timeline) },
	"server_start": func(h *Heartbeat, s string) bool { return parseInstant(s, &h.ServerStart) },
	"fault":        func(h *Heartbeat, s string) bool { h.Fault = s; return true },
	"faults":       func(h *Heartbeat, s string) bool { return parseInt64(s, &h.Faults) },
}

// parseHeartbeat reads a row of lapse.heartbeat; nil when it cannot be read.
func parseHeartbeat(change *replication.Change) *Heartbeat {
	h := &Heartbeat{}
	found := 0
	for i, column := range change.Relation.Columns {
		read, wanted := heartbeatColumns[column.Name]
		if !wanted {
			continue
		}
		found++
		if i < len(change.New) && change.New[i].Kind == replication.Null && (column.Name == "former" || column.Name == "fault") {
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

func parseNumber[T ~uint32](s string, to *T) bool {
	var n uint32
	ok := parseUint32(s, &n)
	*to = T(n)
	return ok
}

// faulty says whether something was published otherwise than it must be since the heartbeat before, as far as this one
// tells. former is nil where none is known, and has no nonce where some may have been written that nobody was to read.
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
	if h.Fault != "" {
		b = appendText(append(b, `,"fault":`...), h.Fault, form)
	}
	return append(appendInt(append(b, `,"faults":`...), h.Faults), '}')
}

// heartbeatJSON is a heartbeat as a record of the log has it.
type heartbeatJSON struct {
	Nonce       uuid.UUID `json:"nonce"`
	Former      uuid.UUID `json:"former"`
	At          time.Time `json:"at"`
	History     uint32    `json:"history"`
	Timeline    uint32    `json:"timeline"`
	ServerStart time.Time `json:"server_start"`
	Fault       string    `json:"fault"`
	Faults      int64     `json:"faults"`
}

func (j *heartbeatJSON) heartbeat() *Heartbeat {
	return &Heartbeat{
		Nonce: j.Nonce, Former: j.Former, At: j.At, History: schemas.History(j.History),
		Timeline: schemas.Timeline(j.Timeline), ServerStart: j.ServerStart, Fault: j.Fault, Faults: j.Faults,
	}
}

// startBeating writes a heartbeat when a stream is found to be fit, and each Config.BeatEvery, in its own time: a database
// that is slow to answer must not hold up the stream.
func (a *Auditor) startBeating(ctx context.Context) (stop func()) {
	if a.config.Beat == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(a.config.BeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-a.streaming:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if place := a.place.Load(); place != nil {
				a.beat(ctx, place)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (a *Auditor) beat(ctx context.Context, place *Place) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	nonce, err := uuid.NewV7()
	if err == nil {
		err = a.config.Beat(ctx, nonce, *place)
	}
	if err != nil {
		a.log.Warn("heartbeat not written", "error", err)
		a.pulse.failed(time.Now())
		return
	}
	a.pulse.sent(time.Now())
}

// pulse knows whether heartbeats come back, and what the last one found. Safe for concurrent use.
type pulse struct {
	unsent atomic.Int64           // since when no heartbeat could be written; Unix microseconds, 0 for not
	missed atomic.Int64           // since when heartbeats have been written and none was read; Unix microseconds, 0 for none
	fault  atomic.Pointer[string] // what the last one found changed in the publications; nil or empty for nothing
}

func (p *pulse) sent(now time.Time) {
	p.unsent.Store(0)
	p.missed.CompareAndSwap(0, now.UnixMicro())
}

func (p *pulse) failed(now time.Time) { p.unsent.CompareAndSwap(0, now.UnixMicro()) }

// reset forgets what was written: another stream begins.
func (p *pulse) reset() {
	p.unsent.Store(0)
	p.missed.Store(0)
}

// read takes note of a heartbeat that came out of the stream.
func (p *pulse) read(h *Heartbeat) {
	p.missed.Store(0)
	p.fault.Store(&h.Fault)
}

// check says what is wrong: heartbeats that are written and not sent, for longer than patience, and publications that
// somebody else has changed.
func (p *pulse) check(patience time.Duration) error {
	if fault := p.fault.Load(); fault != nil && *fault != "" {
		return fmt.Errorf("what is published is not what Lapse published: %s: put it back, then run lapse init", *fault)
	}
	if since := sinceMicro(p.unsent.Load()); since > patience {
		return fmt.Errorf("heartbeats could not be written for %s, so that nothing is deleted: the log of the auditor says why",
			since.Round(time.Second))
	}
	if since := sinceMicro(p.missed.Load()); since > patience {
		return fmt.Errorf("heartbeats have not come back for %s: see whether lapse.heartbeat is in the publication lapse_ledger "+
			"(lapse init says so), or whether the slot has much to catch up with", since.Round(time.Second))
	}
	return nil
}

// sinceMicro is the time since an instant in Unix microseconds; 0 since none.
func sinceMicro(instant int64) time.Duration {
	if instant == 0 {
		return 0
	}
	return time.Since(time.UnixMicro(instant))
}

// Place is the database that a stream was found to be of, as a heartbeat names it.
type Place struct {
	History     schemas.History
	Timeline    schemas.Timeline
	ServerStart time.Time
}
