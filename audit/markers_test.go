package audit_test

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// holdMarkers has the broker refuse markers for a topic, and let everything else in.
func holdMarkers(cluster *kfake.Cluster, topic string) *kfake.FaultHandle {
	return cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1,
		When: func(request kmsg.Request) bool {
			produce, ok := request.(*kmsg.ProduceRequest)
			if !ok {
				return false
			}
			for _, topic := range produce.Topics {
				for _, partition := range topic.Partitions {
					for _, text := range []string{`lapse-marker`, `"kind":"rewind"`, `"kind":"gap"`} {
						if bytes.Contains(partition.Records, []byte(text)) {
							return true
						}
					}
				}
			}
			return false
		},
	})
}

func TestADeathBetweenAMarkersRecordsLeavesOneInEachPartition(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		b := newBender(t, r)
		b.beat(t)
		b.work(t)
		b.run(t)
		for i, kind := range []string{"rewind", "gap"} {
			if kind == "rewind" {
				b.accept(t, b.check(t))
			} else {
				b.dropSlot(t)
				b.makeSlot(t, true)
			}
			b.work(t)
			for _, topic := range []string{r.settings.System, r.settings.Log} {
				held := holdMarkers(cluster, topic)
				run := b.start(t, hasty)
				eventually(t, "the marker is in the user topic, and was refused elsewhere",
					func() bool { return r.count(t, r.settings.User, kind) == partitions && held.Hits() >= 3 })
				run.stop()
				<-run.done
				held.Remove()
				run.err = nil
				if n := r.count(t, r.settings.Log, kind); n != 0 {
					t.Errorf("the log has %d records of a %s that is not in every partition", n, kind)
				}
			}
			b.run(t)
			for topic, want := range map[string]int{r.settings.System: partitions, r.settings.User: partitions, r.settings.Log: 1} {
				if n := r.count(t, topic, kind); n != want {
					t.Errorf("%s has the %s %d times, want %d", topic, kind, n, want)
				}
			}
			system, user := r.count(t, r.settings.System, "delete"), r.count(t, r.settings.User, "delete")
			t.Logf("%s: %d system events, %d others of %d rows", kind, system, user, sum(b.lives))
			if system+user != sum(b.lives) {
				t.Errorf("round %d: %d events of %d rows", i, system+user, sum(b.lives))
			}
		}
	})
}
