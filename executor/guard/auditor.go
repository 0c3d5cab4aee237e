package guard

import (
	"fmt"
	"time"
)

// NoAuditor is the reason of auditor.
const NoAuditor Reason = "auditor_away"

// AuditorSilence is how long the auditor may be away, and how old an unconfirmed batch may be.
const AuditorSilence = time.Minute

// auditor refuses if no process has read the slot for a minute, and no valid heartbeat shows that an auditor is at work.
type auditor struct{}

func (auditor) Ask(q *Question) Answer {
	f := q.Facts
	if !f.required || f.active || f.beating || f.doubted || q.Now.Sub(q.Memory.AuditorSeen) <= AuditorSilence {
		return Answer{}
	}
	return refuse(NoAuditor, fmt.Sprintf("nobody has read replication slot %q for a minute", f.slot), "start `lapse audit` or `lapse serve`")
}

// OwnAuditor waits until looked reports that the auditor of the same process has compared the log with the database, or has found another
// auditor at work. Without it, deletion could start on the heartbeat of a former auditor, which is valid for two minutes.
func OwnAuditor(looked func() bool) Guard { return ownAuditor{looked} }

type ownAuditor struct{ looked func() bool }

func (g ownAuditor) Ask(q *Question) Answer {
	if !q.Facts.required || g.looked() {
		return Answer{}
	}
	return Answer{Verdict: Wait, Refusal: Refusal{NoAuditor, "the auditor of this process has not compared log and database yet", "/readyz says what it waits for"}}
}
