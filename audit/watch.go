package audit

import (
	"context"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
)

// watch waits where another auditor may be alive on another copy of this database: the server was started since the last
// heartbeat in the log, and this process is not the one that wrote it last. Whoever lives writes within two heartbeats.
// The slot is held meanwhile, so it is not one of this server's.
func (j *judge) watch(ctx context.Context) error {
	beat := j.start.last.Beat
	if beat == nil || j.thorough || !j.restartedSince(beat) || j.past.fence == j.auditor.process {
		return nil
	}
	watch := 2 * j.auditor.config.BeatEvery
	j.auditor.stand(fmt.Sprintf("the server was started since the last heartbeat: watching for %s whether another auditor writes %s",
		watch, j.route.Log.Name))
	j.auditor.log.Info("the server was started since the last heartbeat in the log; watching whether another auditor writes it",
		"log", j.route.Log.Name, "for", watch)
	return j.stream.During(ctx, func(ctx context.Context) error {
		from := j.past.ends[j.route.Log.Name][0]
		return watchLog(ctx, j.client, j.route, j.auditor.process, from, min(time.Second, j.auditor.config.BeatEvery/4), watch)
	})
}

// watchLog looks at what is appended to a log from an offset on, every so often and once more at the end. What somebody else
// writes into the topic is no auditor's. A log that cannot be looked at is waited for.
func watchLog(ctx context.Context, client *kafka.Client, route *evidence.Route, process string, from int64, every, watch time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	end := time.NewTimer(watch)
	defer end.Stop()
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-end.C:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var err error
		if from, err = lookAtLog(ctx, client, route, process, from); err != nil {
			return err
		}
	}
	return nil
}

// lookAtLog reads what was appended from an offset on, and returns where it ends.
func lookAtLog(ctx context.Context, client *kafka.Client, route *evidence.Route, process string, from int64) (int64, error) {
	log := route.Log.Name
	end, err := client.End(ctx, log, 0)
	if err != nil {
		return from, err
	}
	err = client.ReadPartition(ctx, log, 0, from, end, func(rec *kafka.Record, _ int64) error {
		record, err := logRecordOf(rec, route)
		if err == nil && (record != nil || rec.IsFence() && headerOf(rec, evidence.HeaderProcess) != process) {
			err = refuse(ErrOtherAuditor, "%s grows, and the slot of this server is held here",
				"this server is a copy of another one, whose auditor lives: give the copy topics of its own (topics in lapse.yaml), "+
					"or stop the other auditor", log)
		}
		return err
	})
	return end, err
}

// WatchLog watches a log for some time, and returns an error (ErrOtherAuditor) if an auditor writes it meanwhile. Whoever goes
// on with the log on another copy of the database would end the auditor that lives.
func WatchLog(ctx context.Context, config Config, watch time.Duration) error {
	a, err := New(config)
	if err != nil {
		return err
	}
	client, err := kafka.NewClient(a.clientConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	from, err := client.End(ctx, config.Log, 0)
	if err != nil {
		return err
	}
	return watchLog(ctx, client, a.route(replication.Identity{}), a.process, from, time.Second, watch)
}
