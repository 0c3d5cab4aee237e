package guard

import (
	"context"
	"fmt"

	"lapse/executor/state"
)

const (
	// HistoryChanged is the reason of accepted, and of heartbeat for a heartbeat of another server or history.
	HistoryChanged Reason = "history_changed"
	// StateUnreadable is the reason where nobody can tell whether the history has changed.
	StateUnreadable Reason = "state_unreadable"
)

// accepted refuses, where nobody reads what is deleted, a server that no person has accepted as it is.
type accepted struct{}

func (accepted) Ask(q *Question) Answer {
	f := q.Facts
	why := f.strays
	switch {
	case f.required:
		return Answer{}
	case f.server != f.accepted:
		why = fmt.Sprintf("this server is at %v, and the last accepted one is %v: a standby was promoted, or a copy restored or started", f.server, f.accepted)
	case f.blind != nil:
		return refuse(StateUnreadable, "the file about this database cannot be read: "+f.blind.Error(),
			"let the executor read it; or remove it, but then a restored copy is not noticed")
	case why == "":
		return Answer{}
	}
	return refuse(HistoryChanged, why, "see that this is the server you mean, then run `lapse history accept --reason TEXT`")
}

// Restored says why nothing is deleted where a server is not the one that somebody accepted, or that the auditor's heartbeats are of;
// nil where it is. It needs no more than to read the catalog. memory is what an executor remembers; nil, or where it cannot be read: nothing.
func Restored(ctx context.Context, q Querier, memory *state.Folder) (*Refusal, error) {
	recalled := memory.Recall()
	f, err := Read(ctx, q, nil)
	if err != nil || f.standby || !f.installed {
		return nil, err
	}
	f.Compare(recalled)
	question := Question{Facts: f, Memory: &Memory{}}
	for _, g := range []Guard{accepted{}, heartbeat{}} {
		if a := g.Ask(&question); a.Reason == HistoryChanged {
			return &a.Refusal, nil
		}
	}
	return nil, nil
}
