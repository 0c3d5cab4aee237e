package guard

import "fmt"

// HistoryChanged is the reason of accepted, and of heartbeat for a heartbeat of another server or history.
const HistoryChanged Reason = "history_changed"

// accepted refuses, where nobody reads what is deleted, a server that no person has accepted as it is.
type accepted struct{}

func (accepted) Ask(q *Question) Answer {
	f := q.Facts
	if f.required || f.server == f.accepted {
		return Answer{}
	}
	return refuse(HistoryChanged,
		fmt.Sprintf("this server is at %v, and what was accepted last is %v: a standby was promoted, or a copy restored or started", f.server, f.accepted),
		"see that this is the server you mean, then run `lapse history accept --reason TEXT`")
}
