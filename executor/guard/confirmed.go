package guard

import (
	"fmt"
	"time"
)

// AuditBehind is the reason of confirmed.
const AuditBehind Reason = "audit_behind"

// stallPatience is how long an auditor that is behind may make no progress before a person must check.
const stallPatience = 10 * time.Second

// confirmed waits while a batch older than AuditorSilence is unconfirmed, and refuses once the auditor makes no progress, or is away.
type confirmed struct{}

func (confirmed) Ask(q *Question) Answer {
	oldest, any := q.Memory.Unconfirmed.oldest()
	if !q.Facts.required || !any || q.Now.Sub(oldest.at) <= AuditorSilence {
		return Answer{}
	}
	if away(q) {
		return noAuditor(q.Facts)
	}
	a := refuse(AuditBehind,
		fmt.Sprintf("the auditor has confirmed %v, batches more than a minute old reach up to %v", q.Memory.confirmed, oldest.below),
		"see why `lapse audit` is slow: its log, and whether Kafka answers")
	if q.Now.Sub(q.Memory.advancedAt) < stallPatience {
		a.Verdict = Wait
	}
	return a
}
