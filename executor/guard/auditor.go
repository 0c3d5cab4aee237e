package guard

import (
	"fmt"
	"time"
)

// The reasons of auditor, besides HistoryChanged.
const (
	NoAuditor       Reason = "auditor_away"
	AuditorStarting Reason = "auditor_starting"
	NoHeartbeat     Reason = "no_beat"
)

// AuditorSilence is how long the auditor may be away, how long the auditor of the same process may take to start, and how old an
// unconfirmed batch may be.
const AuditorSilence = time.Minute

// auditor refuses if no heartbeat of the last minutes belongs to this server, since its last start, and to this history. It waits while the
// auditor of the same process starts, and refuses if that takes longer than AuditorSilence.
type auditor struct {
	// awaits says what the auditor of the same process waits for; "" once it has compared the log with the database, or has found another
	// auditor at work. Nil if the process has no auditor.
	awaits func() string
}

func (g auditor) Ask(q *Question) Answer {
	f := q.Facts
	switch {
	case !f.required:
		return Answer{}
	case g.starting(q):
		a := refuse(AuditorStarting, "the auditor of this process has not compared log and database yet", "/readyz says what it waits for")
		if why := g.awaits(); why != "" {
			a.Detail += ": " + why
		}
		if q.Now.Sub(q.Memory.since) <= AuditorSilence {
			a.Verdict = Wait
		}
		return a
	case !f.beating && !f.doubted && away(q):
		return noAuditor(f)
	}
	return heartbeat(f)
}

// away reports whether nobody has read the slot for longer than AuditorSilence.
func away(q *Question) bool {
	return !q.Facts.active && q.Now.Sub(q.Memory.AuditorSeen) > AuditorSilence
}

func noAuditor(f *Facts) Answer {
	return refuse(NoAuditor, fmt.Sprintf("no process reads replication slot %q", f.slot), "start `lapse audit` or `lapse serve`")
}

// heartbeat refuses without a valid heartbeat.
func heartbeat(f *Facts) Answer {
	const fix = "see that `lapse audit` or `lapse serve` runs and what it logs; it writes heartbeats once log and database agree"
	switch {
	case !f.required || f.beating:
		return Answer{}
	case f.last != nil && *f.last != f.server:
		return refuse(HistoryChanged, fmt.Sprintf("this server is at %v, and the auditor's last heartbeat was at %v", f.server, *f.last),
			fix+"; if they are not, `lapse history` shows where they differ")
	case f.doubted:
		return refuse(NoHeartbeat, "the auditor has revoked its heartbeats: it cannot continue without a person",
			"see what `lapse audit` or `lapse serve` says, and `lapse history`")
	case f.restarted:
		return refuse(NoHeartbeat, "the server was started again since the auditor's last heartbeat", fix)
	}
	return refuse(NoHeartbeat, fmt.Sprintf("the auditor has written no heartbeat for %v", heartbeatLasts), fix)
}

// starting reports whether the auditor of the same process has not compared yet, or is expected to write a heartbeat soon. The heartbeat of a
// former auditor, which is valid for two minutes, does not do instead.
func (g auditor) starting(q *Question) bool {
	f := q.Facts
	return g.awaits != nil && !f.doubted && (g.awaits() != "" || !f.beating && q.Now.Sub(q.Memory.since) <= AuditorSilence)
}
