package guard

import (
	"context"
	"fmt"
)

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

// Restored says why nothing is deleted where a server is not the one that somebody accepted, or that the auditor's heartbeats are of;
// "" where it is. It needs no more than to read the catalog.
func Restored(ctx context.Context, q Querier) (string, error) {
	f, err := Read(ctx, q, nil)
	if err != nil || f.standby || !f.installed {
		return "", err
	}
	question := Question{Facts: f, Memory: &Memory{}}
	for _, g := range []Guard{accepted{}, heartbeat{}} {
		if a := g.Ask(&question); a.Reason == HistoryChanged {
			return a.Error(), nil
		}
	}
	return "", nil
}
