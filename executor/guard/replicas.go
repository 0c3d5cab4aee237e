package guard

import (
	"fmt"
	"slices"
	"time"
)

// ReplicaLag is the reason of replicas.
const ReplicaLag Reason = "replica_lag"

const (
	// replicaStop is the multiple of the limit at which batches stop.
	replicaStop = 3
	// replicaSlack is how far behind, in bytes, a standby always is.
	replicaSlack = 1 << 20
)

// replicas slows down, and then waits, while a standby lags. It measures the lag by what this process has seen the server write: a
// standby's own figures stop when the standby does.
type replicas struct{ Limits }

func (r replicas) Ask(q *Question) Answer {
	var lag time.Duration
	var name string
	for _, s := range q.Facts.load.Replicas {
		behind := q.Memory.flushed.behind(s.Replay+replicaSlack, q.Now)
		if behind > lag && !slices.Contains(r.Delayed, s.Name) {
			lag, name = behind, s.Name
		}
	}
	if r.ReplicaLag < 0 || lag <= r.ReplicaLag {
		return Answer{}
	}
	detail := fmt.Sprintf("standby %q is %s behind", name, lag.Round(time.Second))
	const fix = "see why it replays slowly; one that lags on purpose is named in limits.delayed_replicas"
	if lag > replicaStop*r.ReplicaLag {
		return Answer{Verdict: Wait, Refusal: Refusal{ReplicaLag, detail, fix}}
	}
	if q.unlimited() {
		return Answer{}
	}
	return slow(between(float64(lag), float64(r.ReplicaLag), float64(replicaStop*r.ReplicaLag)), ReplicaLag, detail, fix)
}
