package guard

import "fmt"

// NoHeartbeat is the reason of heartbeat if there was none in the last minutes.
const NoHeartbeat Reason = "no_beat"

// heartbeat refuses if no heartbeat of the last minutes belongs to this server, since its last start, and to this history.
type heartbeat struct{}

func (heartbeat) Ask(q *Question) Answer {
	const fix = "see that `lapse audit` or `lapse serve` runs and what it logs; it writes heartbeats once log and database agree"
	f := q.Facts
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
