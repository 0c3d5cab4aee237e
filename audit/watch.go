package audit

import (
	"context"
	"fmt"
	"time"
)

// watch waits where another auditor may be alive on another copy of this database: the server was started since the last
// heartbeat in the log, and this process is not the one that wrote it last. Whoever lives writes within two heartbeats.
// The slot is held meanwhile, so it is not one of this server's.
func (j *judge) watch(ctx context.Context) error {
	beat := j.start.last.beat
	if beat == nil || j.thorough || beat.ServerStart.Equal(j.identity.ServerStart.UTC().Truncate(time.Microsecond)) ||
		j.past.fence == j.auditor.process {
		return nil
	}
	watch := 2 * j.auditor.config.BeatEvery
	j.auditor.stand(fmt.Sprintf("the server was started since the last heartbeat: watching for %s whether another auditor writes %s",
		watch, j.route.Log.Name))
	j.auditor.log.Info("the server was started since the last heartbeat in the log; watching whether another auditor writes it",
		"log", j.route.Log.Name, "for", watch)
	watching, cancel := context.WithTimeout(ctx, watch)
	defer cancel()
	done := make(chan struct{})
	var grown error
	go func() {
		defer close(done)
		grown = j.grows(watching)
	}()
	if broken := answer(ctx, j.stream, done); broken != nil {
		cancel()
		<-done
		return broken
	}
	return grown
}

// grows looks at the log until ctx ends, and returns an error if somebody writes it.
func (j *judge) grows(ctx context.Context) error {
	log := j.route.Log.Name
	tick := time.NewTicker(min(time.Second, j.auditor.config.BeatEvery/4))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		end, err := j.client.End(ctx, log, 0)
		if err == nil && end > j.past.ends[log][0] {
			return refuse(ErrOtherAuditor, "%s grows, and the slot of this server is held here",
				"this server is a copy of another one, whose auditor lives: give the copy topics of its own (topics in lapse.yaml), "+
					"or stop the other auditor", log)
		}
	}
}
