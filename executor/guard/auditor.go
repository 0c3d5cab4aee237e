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
	if !f.required || f.active || f.beating || q.Now.Sub(q.Memory.AuditorSeen) <= AuditorSilence {
		return Answer{}
	}
	return refuse(NoAuditor, fmt.Sprintf("nobody has read replication slot %q for a minute", f.slot), "start `lapse audit` or `lapse serve`")
}
