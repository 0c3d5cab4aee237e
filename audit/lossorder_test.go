package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/audit/kafka"
	"lapse/internal/fixture"
	"lapse/replication"
	"lapse/schemas"
)

// gapsAt is gapsIn for a broker in memory.
func (r *rig) gapsAt(t *testing.T) map[string]int {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{r.settings.Broker}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found := map[string]int{}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		offsets, err := client.Offsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p, o := range offsets {
			err := client.ReadPartition(t.Context(), topic, int32(p), o.First, o.End, func(rec *schemas.Record, _ int64) error {
				if rec.Header("lapse-op") == "gap" {
					found[fmt.Sprintf("%s/%d", topic, p)]++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// oneGapEach wants a gap in every partition and in the log, and none to come with another start.
func (r *rig) oneGapEach(t *testing.T) {
	t.Helper()
	for range 2 {
		r.once(t, r.beating(time.Hour))
		found := r.gapsAt(t)
		for _, topic := range []string{r.settings.System, r.settings.User} {
			for partition := range partitions {
				if place := fmt.Sprintf("%s/%d", topic, partition); found[place] != 1 {
					t.Errorf("%s has %d gaps, want 1", place, found[place])
				}
			}
		}
		if n := r.count(t, r.settings.Log, "gap"); n != 1 {
			t.Errorf("the log has %d gaps, want 1", n)
		}
	}
}

// A heartbeat that the slot sends again may lie below what the former auditor has published since. The gap is not there: the
// partitions that are further used to have none.
//
//lapse:long
func TestAGapIsInEveryPartitionThoughSomeAreFurther(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.commit(t, w, 4, user)
		r.catchUp(t, w.conn)
		held := hold(cluster, r.settings.Log)
		r.db.Exec(t, beatNow)
		r.commit(t, w, 12, system)
		eventually(t, "the events are published", func() bool { return r.count(t, r.settings.System, "delete") == 36 })
		run.end(t)
		r.deleteTopic(t, r.settings.User)
		held.Remove()
		r.oneGapEach(t)
	})
}

// Nothing is published above the gap of a topic before the log has it: an auditor that starts in between writes the same
// gap again, and no other.
func TestTheGapOfATopicIsOneThoughTheAuditorDiesBeforeItsRecord(t *testing.T) {
	onHeavyFake(t, func(t *testing.T, r *rig, cluster *kfake.Cluster) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.commit(t, w, 4, user)
		r.catchUp(t, w.conn)
		run.end(t)
		r.deleteTopic(t, r.settings.User)
		run = r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		held := hold(cluster, r.settings.Log)
		r.db.Exec(t, beatNow)
		eventually(t, "the gap is in every partition", func() bool { return len(r.gapsAt(t)) == 2*partitions })
		r.commit(t, w, 8, user)
		end := walEnd(t, w.conn)
		eventually(t, "the events are sent", func() bool {
			return fixture.One[bool](t, w.conn, `select coalesce((select sent_lsn >= $1::text::pg_lsn from pg_stat_replication r
				join pg_replication_slots s on s.active_pid = r.pid where s.slot_name = $2), false)`, end.String(), r.settings.Slot)
		})
		run.end(t)
		held.Remove()
		r.oneGapEach(t)
	})
}

// A heartbeat whose records are partly in the log has the record of a gap no more: it would be dropped as one that is there. A later one
// has it.
func TestAGapIsInTheLogThoughItsHeartbeatIsPartlyThere(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 4, user)
		r.once(t, r.beating(time.Hour))
		r.db.Exec(t, `create table parts (id int primary key) partition by range (id)`, `do $$ begin for i in 1..1100 loop
			execute format('create table parts_%s partition of parts for values from (%s) to (%s)', i, i, i + 1); end loop; end $$`)
		r.joins(t, r.db.Connect(t), "parts", replication.Join)
		r.db.Exec(t, beatNow)
		r.dies(t, secondTables)
		r.deleteTopic(t, r.settings.User)
		r.oneGapEach(t)
	})
}

// The history used to be straight while nothing was published since.
func TestTheHistoryOfATopicThatLostSomethingIsAGap(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 4, user)
		r.once(t, r.beating(time.Hour))
		r.deleteTopic(t, r.settings.User)
		outcome := func(want history.Outcome, why string) {
			t.Helper()
			got, err := audit.CheckHistory(t.Context(), r.settings.config())
			if err != nil {
				t.Fatal(err)
			}
			if got.Outcome != want || !strings.Contains(got.Why, why) {
				t.Errorf("the outcome is %s (%s), want %s", got.Outcome, got.Why, want)
			}
		}
		outcome(history.OutcomeGap, r.settings.User+" lacks what was acknowledged")
		r.once(t, r.beating(time.Hour))
		outcome(history.OutcomeStraight, "")
	})
}
