package audit

import (
	"context"
	"errors"
	"time"

	"lapse/audit/history"
	"lapse/replication"
)

// CheckHistory makes the check of a start, and returns its result. If the database is not the one that the log belongs to, the result has the
// fork, and what is lost. CheckHistory writes nothing and confirms nothing, but it reads the slot, so it fails while an auditor runs.
func CheckHistory(ctx context.Context, config Config) (*history.Result, error) {
	a, err := New(config)
	if err != nil {
		return nil, err
	}
	client, err := a.newClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	opened, err := a.openStream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.stream.Close(context.WithoutCancel(ctx)) }()
	check, err := a.checkHistory(ctx, client, opened, true)
	var bent *history.BentError
	switch {
	case errors.As(err, &bent):
		return bent.Result, nil
	case errors.Is(err, history.ErrForeignTail):
		r := check.Result
		r.Outcome, r.Why, r.ForeignTail, r.Fork = history.OutcomeBent, err.Error(), true, check.Topics.LogEnd.Reach
		return r, nil
	case err != nil:
		return nil, err
	}
	return check.Result, nil
}

// WatchLog watches a log for some time, and returns an error if an auditor writes it meanwhile. Call it before another copy of the database
// continues the log: that would fence the auditor that writes it.
func WatchLog(ctx context.Context, config Config, length time.Duration) error {
	a, err := New(config)
	if err != nil {
		return err
	}
	client, err := a.newClient()
	if err != nil {
		return err
	}
	defer client.Close()
	return history.WatchLog(ctx, client, a.route(replication.Identity{}), a.process, length)
}
