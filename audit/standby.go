package audit

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lapse/replication"
)

// standby is what an auditor knows while another stream has the slot. If heartbeats show that an auditor is alive there, this one is ready: it takes
// over when the other one ends, and has nothing else to do. Without heartbeats it is not known who reads the slot.
type standby struct {
	says  atomic.Pointer[string] // that it stands by; nil while it does not
	taken bool                   // the last attempt found the slot in use
	beat  time.Time              // the newest heartbeat of the catalog, by the server's clock
	seen  time.Time              // when that was first read, by this process's clock
}

// saw records the catalog's newest heartbeat.
func (s *standby) saw(beat, now time.Time) {
	if s.seen.IsZero() || !beat.Equal(s.beat) {
		s.beat, s.seen = beat, now
	}
}

// StandsBy says what the auditor stands by for while another auditor reads the slot; "" while it does not. Safe for concurrent use.
func (a *Auditor) StandsBy() string {
	if says := a.standby.says.Load(); says != nil {
		return *says
	}
	return ""
}

// standsBy handles the result of an attempt to get the slot. It returns true if another stream has it, and there is nothing else to report.
// It logs once that it stands by, and once if no auditor is alive there.
func (a *Auditor) standsBy(err error, now time.Time) bool {
	s := &a.standby
	var slot *replication.SlotError
	if !errors.Is(err, replication.ErrSlotActive) || !errors.As(err, &slot) {
		a.actsAgain()
		return false
	}
	before := s.says.Load() != nil
	who := fmt.Sprintf("replication slot %q is read", slot.Slot)
	if slot.Detail != "" {
		who += " " + slot.Detail
	}
	if silent := now.Sub(s.seen); !s.seen.IsZero() && silent > 2*a.config.HeartbeatEvery {
		why := fmt.Sprintf("%s, and no auditor has written a heartbeat for %s: see who reads it, and stop that", who, silent.Round(time.Second))
		if before || !s.taken {
			a.log.Warn("the slot is in use, and no auditor is alive", "error", why)
		}
		a.actsAgain()
		a.setNotReady(why)
	} else {
		text := "standing by: " + who
		s.says.Store(&text)
		a.metrics.standingBy.Set(1)
		a.metrics.setWaiting(time.Time{})
		if !before {
			a.log.Info("standing by: another auditor reads the slot", "slot", slot.Slot, "reader", slot.Detail)
		}
	}
	s.taken = true
	return true
}

// actsAgain records that no other stream has the slot, as far as is known.
func (a *Auditor) actsAgain() {
	a.standby.says.Store(nil)
	a.standby.taken = false
	a.metrics.standingBy.Set(0)
}
