package guard

import (
	"time"

	"lapse/schemas"
)

// Memory is what earlier readings showed. Only Unconfirmed is safe for concurrent use.
//
// A restart loses it. The first reading then requires the present position to be confirmed: it is above every batch of a former process.
type Memory struct {
	// Unconfirmed are the batches that the auditor must confirm.
	Unconfirmed Unconfirmed
	// AuditorSeen is when the slot was last seen in use.
	AuditorSeen time.Time

	since      time.Time // of the first reading
	confirmed  schemas.LSN
	advancedAt time.Time // when confirmed last moved
	restart    schemas.LSN
	restartAt  time.Time // when restart last moved
	waitedFor  time.Time // when a session was last seen to wait for a batch
	flushed    progress
	clock      believed
}

// Observe records the result of a reading. ticket was drawn before the reading.
func (m *Memory) Observe(f *Facts, ticket Ticket, now time.Time) {
	if f.standby || !f.installed {
		return
	}
	if f.active {
		m.AuditorSeen = now
	}
	if f.confirmed != 0 && f.confirmed != m.confirmed {
		m.confirmed, m.advancedAt = f.confirmed, now
	}
	if r := f.load.Restart; m.restartAt.IsZero() || r != m.restart {
		m.restart, m.restartAt = r, now
	}
	if f.load.Waiting > 0 {
		m.waitedFor = now
	}
	m.flushed.add(f.load.Flushed, now)
	m.clock.see(f)
	if m.since.IsZero() {
		m.since = now
		m.Unconfirmed.require(now, f.insert)
	}
	m.Unconfirmed.Below(ticket, f.insert)
	m.Unconfirmed.confirm(m.confirmed)
}
