package history

import (
	"context"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/schemas"
)

// watchForOther waits to see whether another auditor writes the log, if that is possible: the server was started since the last heartbeat
// in the log, so it may be a copy, and another process was the last to fence the log. A live auditor writes within two heartbeats. It
// cannot be on this server, because this process holds the slot here.
func (h *Check) watchForOther(ctx context.Context) error {
	beat := h.Start.Last.Beat
	if beat == nil || h.FindFork || !h.restartedSince(beat) || h.Topics.fence == h.Process {
		return nil
	}
	length := 2 * h.HeartbeatEvery
	h.Waits(fmt.Sprintf("the server was started since the last heartbeat: watching for %s whether another auditor writes %s",
		length, h.Route.Log.Name))
	h.Logger.Info("the server was started since the last heartbeat in the log; watching whether another auditor writes it",
		"log", h.Route.Log.Name, "for", length)
	return h.Stream.During(ctx, func(ctx context.Context) error {
		w := logWatch{client: h.Client, route: h.Route, process: h.Process, next: h.Topics.ends[h.Route.Log.Name][0]}
		return w.run(ctx, min(time.Second, h.HeartbeatEvery/4), length)
	})
}

// WatchLog watches a log for some time, and returns an error if another auditor writes it meanwhile. process is the caller's own.
func WatchLog(ctx context.Context, client store.Client, route *evidence.Route, process string, length time.Duration) error {
	w := logWatch{client: client, route: route, process: process}
	var err error
	if w.next, err = w.end(ctx); err != nil {
		return err
	}
	return w.run(ctx, time.Second, length)
}

// logWatch watches whether another auditor writes a log.
type logWatch struct {
	client  store.Client
	route   *evidence.Route
	process string // this one
	next    int64  // the offset of the first record that has not been read
}

// run reads what is appended to the log, each interval and once more at the end. The client retries a log that cannot be read. Records that other
// programs write into the topic do not count.
func (w *logWatch) run(ctx context.Context, interval, length time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	end := time.NewTimer(length)
	defer end.Stop()
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-end.C:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := w.readAppended(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readAppended refuses a record of the log, and a fence of another process.
func (w *logWatch) readAppended(ctx context.Context) error {
	log := w.route.Log.Name
	end, err := w.end(ctx)
	if err != nil {
		return err
	}
	err = store.Each(ctx, w.client.Reader(log, 0, w.next, end), func(rec *schemas.Record, _ int64) error {
		record, err := logRecordOf(rec, w.route)
		if err == nil && (record != nil || rec.IsFence() && rec.Header(evidence.HeaderProcess) != w.process) {
			err = Refuse(ErrOtherAuditor, "%s grows, and the slot of this server is held here",
				"this server is a copy of another one, whose auditor lives: give the copy topics of its own (topics in lapse.yaml), "+
					"or stop the other auditor", log)
		}
		return err
	})
	w.next = end
	return err
}

// end returns the offset of the log's next record.
func (w *logWatch) end(ctx context.Context) (int64, error) {
	bounds, err := w.client.Offsets(ctx, w.route.Log.Name)
	if err != nil {
		return 0, err
	}
	return bounds[0].End, nil
}
