package guard

import (
	"context"
	"fmt"

	"lapse/executor/state"
)

const (
	// HistoryChanged is the reason of accepted, and of heartbeat for a heartbeat of another server or history.
	HistoryChanged Reason = "history_changed"
	// StateUnreadable is the reason if the file that would show a changed history cannot be read.
	StateUnreadable Reason = "state_unreadable"
)

// accepted refuses, if no audit is required, a server that no person has accepted in its present state.
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

// Restored says why nothing is deleted if the server is not the one that a person accepted, or not the one of the auditor's heartbeats;
// otherwise it returns nil. It only reads the catalog. memory is what an executor remembers of the database; it may be nil.
func Restored(ctx context.Context, q Querier, memory *state.Folder) (*Refusal, error) {
	recalled := memory.Recall()
	f, err := Read(ctx, q, nil)
	if err != nil || f.standby || !f.installed {
		return nil, err
	}
	f.Compare(recalled)
	for _, a := range []Answer{accepted{}.Ask(&Question{Facts: f}), heartbeat(f)} {
		if a.Reason == HistoryChanged {
			return &a.Refusal, nil
		}
	}
	return nil, nil
}
