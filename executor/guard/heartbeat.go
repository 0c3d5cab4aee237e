package guard

import "fmt"

// NoHeartbeat is the reason of heartbeat for none of the last minutes.
const NoHeartbeat Reason = "no_beat"

// heartbeat refuses where no heartbeat of the last minutes is of this server, as it runs, in this history.
type heartbeat struct{}

func (heartbeat) Ask(q *Question) Answer {
	const fix = "see that `lapse audit` or `lapse serve` runs and what it says; it beats once it has found its log and this database to be one history"
	f := q.Facts
	switch {
	case !f.required || f.beating:
		return Answer{}
	case f.last != nil && *f.last != f.server:
		return refuse(HistoryChanged, fmt.Sprintf("this server is at %v, and the auditor's last beat is of %v", f.server, *f.last),
			fix+"; if they are not, `lapse history` says in what")
	case f.restarted:
		return refuse(NoHeartbeat, "the server was started again since the auditor's last beat", fix)
	}
	return refuse(NoHeartbeat, fmt.Sprintf("the auditor has written no beat for %v", heartbeatLasts), fix)
}
