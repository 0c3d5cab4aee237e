package guard

import (
	"fmt"
	"time"
)

// NoAuditor is the reason of auditor.
const NoAuditor Reason = "auditor_away"

// AuditorSilence is how long the auditor may be away, and how old an unconfirmed batch may be.
const AuditorSilence = time.Minute

// auditor refuses when nobody reads the slot and nothing else says that somebody does.
type auditor struct{}

func (auditor) Ask(q *Question) Answer {
	f := q.Facts
	if !f.required || f.active || f.beating || f.doubted || q.Now.Sub(q.Memory.AuditorSeen) <= AuditorSilence {
		return Answer{}
	}
	return refuse(NoAuditor, fmt.Sprintf("nobody has read replication slot %q for a minute", f.slot), "start `lapse audit` or `lapse serve`")
}

// OwnAuditor waits until looked says that the auditor of the same process has compared log and database, or has found another one at
// work. A former auditor's heartbeat is believed for two minutes, whatever became of the log since.
func OwnAuditor(looked func() bool) Guard { return ownAuditor{looked} }

type ownAuditor struct{ looked func() bool }

func (g ownAuditor) Ask(q *Question) Answer {
	if !q.Facts.required || g.looked() {
		return Answer{}
	}
	return Answer{Verdict: Wait, Refusal: Refusal{NoAuditor, "the auditor of this process has not compared log and database yet", "/readyz says what it waits for"}}
}
