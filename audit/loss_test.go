package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// onHeavyLosing runs a test with a broker of its own, which may lose what it has acknowledged.
func onHeavyLosing(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { test(t, newRig(t, db, kafkatest.Solo(t, kafkaserver.Options{}))) })
}

// recorded commits transactions of users and policies, one by one, and waits until the log has a record of each, so that each has
// batches of its own. It writes no heartbeat.
func (r *rig) recorded(t *testing.T, w *writer, transactions int) {
	t.Helper()
	for i := range transactions {
		before := r.transactions(t)
		r.commit(t, w, 8, []func([]int64) transaction{user, system}[i%2])
		eventually(t, "the log has a record of the transaction", func() bool { return r.transactions(t) == before+1 })
	}
}

func (r *rig) transactions(t *testing.T) (n int) {
	t.Helper()
	for _, record := range r.read(t, r.settings.Log) {
		if record.Header("lapse-op") == "transaction" {
			n++
		}
	}
	return n
}

// loses kills the broker, has it lose the last batches of some partitions of a topic, and starts it again.
func (r *rig) loses(t *testing.T, topic string, batches map[int]int) {
	t.Helper()
	if err := r.broker.Kill(); err != nil {
		t.Fatal(err)
	}
	for partition, n := range batches {
		end, err := r.broker.LoseTail(topic, partition, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s/%d ends at %d now", topic, partition, end)
	}
	if err := r.broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// gapsIn is how many gaps each partition of both topics has.
func (r *rig) gapsIn(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		for _, record := range r.read(t, topic) {
			if record.Header("lapse-op") == "gap" {
				found[fmt.Sprintf("%s/%d", topic, record.Partition)]++
			}
		}
	}
	return found
}

// wantGaps wants n gaps in every partition, and none to come with another start.
func (r *rig) wantGaps(t *testing.T, n int) {
	t.Helper()
	metrics := audit.NewMetrics()
	r.once(t, r.beating(time.Hour), func(c *audit.Config) { c.Metrics = metrics })
	if more := gather(t, metrics)["lapse_gaps_total"]; more != 0 {
		t.Errorf("another start writes %v gaps more", more)
	}
	found := r.gapsIn(t)
	for _, topic := range []string{r.settings.System, r.settings.User} {
		for partition := range partitions {
			if place := fmt.Sprintf("%s/%d", topic, partition); found[place] != n {
				t.Errorf("%s has %d gaps, want %d", place, found[place], n)
			}
		}
	}
}

// A broker that dies and loses what it has acknowledged, while events go on: the next batch is refused, the session is opened
// again, and what is missing is told.
//
//lapse:long
func TestAnEndThatIsLostUnderTheAuditorIsAGap(t *testing.T) {
	for name, lost := range map[string]map[int]int{"one partition": {1: 2}, "all partitions": {0: 1, 1: 3, 2: 2}} {
		t.Run(name, func(t *testing.T) {
			onHeavyLosing(t, func(t *testing.T, r *rig) {
				w := &writer{conn: r.db.Connect(t)}
				run := r.start(t, r.beating(time.Hour)) // none but the one that each start writes
				r.recorded(t, w, 8)
				r.loses(t, r.settings.User, lost)
				r.recorded(t, w, 4)
				eventually(t, "the gap is told", func() bool { return len(r.gapsIn(t)) == 2*partitions })
				r.recorded(t, w, 4)
				run.end(t)
				r.wantGaps(t, 1)
			})
		})
	}
}

// The same while no auditor lives, of what came after the last heartbeat.
func TestAnEndThatIsLostWithoutAnAuditorIsAGap(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 8)
		run.end(t)
		r.loses(t, r.settings.System, map[int]int{2: 1})
		r.once(t, r.beating(time.Hour))
		r.wantGaps(t, 1)
	})
}

// A topic that was deleted while no auditor lived is made again, and what was in it is a gap.
func TestATopicThatIsDeletedWithoutAnAuditorIsAGap(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 6)
		run.end(t)
		r.deleteTopic(t, r.settings.User)
		r.once(t, r.beating(time.Hour))
		r.wantGaps(t, 1)
	})
}

// What was published since the loss does not hide it, however often the auditor dies before the gap is told.
//
//lapse:long
func TestALossIsNotHiddenByWhatComesBeforeItsGap(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 6)
		run.end(t)
		r.loses(t, r.settings.User, map[int]int{0: 1})
		for range 2 { // without a heartbeat there is no gap
			child := startChild(t, r.settings)
			r.recorded(t, w, 8)
			child.kill()
		}
		if found := r.gapsIn(t); len(found) != 0 {
			t.Fatalf("gaps before a heartbeat: %v", found)
		}
		r.once(t, r.beating(time.Hour))
		r.wantGaps(t, 1)
	})
}

// Between a loss's gap and the fence that says the new ends the auditor may die. Then the loss is told again, and no third time.
//
//lapse:long
func TestALossIsToldAgainWhereTheAuditorDiesBehindItsGap(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 6)
		run.end(t)
		r.loses(t, r.settings.User, map[int]int{1: 1})
		r.settings.BeatEvery = time.Hour
		r.dies(t, gapsEnds)
		if found := r.gapsIn(t); len(found) != 2*partitions {
			t.Fatalf("the gap is in %v", found)
		}
		r.once(t, r.beating(time.Hour))
		r.wantGaps(t, 2)
	})
}

// Two losses are two gaps, the second of them in what came after the first.
//
//lapse:long
func TestASecondLossIsASecondGap(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		for n := 1; n <= 2; n++ {
			run := r.start(t, r.beating(time.Hour))
			r.recorded(t, w, 6)
			run.end(t)
			r.loses(t, r.settings.User, map[int]int{1: 1})
			r.once(t, r.beating(time.Hour))
			r.wantGaps(t, n)
		}
	})
}

// What the log has no record of, the slot sends again: it is missing from nothing, though the loss is told.
//
//lapse:long
func TestALossBehindTheLogsEndIsRepaired(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.once(t, r.beating(time.Hour))
		r.commit(t, w, 2000, user)
		r.dies(t, firstRecord)
		r.loses(t, r.settings.User, map[int]int{0: 1, 1: 1, 2: 1})
		r.once(t, r.beating(time.Hour))
		deleted := map[string]bool{}
		for _, record := range r.read(t, r.settings.User) {
			if record.Header("lapse-op") == "delete" {
				deleted[record.Header("lapse-table")+string(record.Key)] = true
			}
		}
		if len(deleted) != 6000 { // and two notes for each session
			t.Errorf("events of %d rows, want 6000", len(deleted))
		}
		r.wantGaps(t, 1)
	})
}

// A log that lost its end, with the events of that time or without them, is below the slot. So is one that was restored
// with the whole broker.
func TestALogThatLostItsEndIsRefused(t *testing.T) {
	onHeavyLosing(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 4)
		r.catchUp(t, w.conn)
		run.end(t)
		r.loses(t, r.settings.Log, map[int]int{0: 2})
		r.refused(t, history.ErrLogBehind)
	})
}

// Somebody makes the topic again with too few partitions: the start says what is missing, and the loss is not forgotten meanwhile.
func TestATopicThatIsMadeAgainWithFewerPartitionsIsAGapWhenItHasThem(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 4)
		run.end(t)
		r.deleteTopic(t, r.settings.System)
		if err := r.broker.CreateTopic(t.Context(), r.settings.System, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.tryOnce(t); err == nil || !strings.Contains(err.Error(), "it has 1 partitions, and 3 are wanted") {
			t.Fatalf("with one partition: %v", err)
		}
		r.deleteTopic(t, r.settings.System)
		r.once(t, r.beating(time.Hour))
		r.wantGaps(t, 1)
	})
}

// A leader is elected that lacks what another has acknowledged, as unclean.leader.election.enable allows.
//
//lapse:long
func TestAnUncleanElectionIsAGap(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 18), func(t *testing.T, db *pgtest.DB) {
		cluster := kafkatest.Cluster(t, 3)
		first, second, third := cluster.Brokers()[0], cluster.Brokers()[1], cluster.Brokers()[2]
		r := newRigAt(t, db, strings.Join(cluster.Addrs(), ","))
		r.broker = third
		r.createOnTwo(t, r.settings.User)
		w := &writer{conn: r.db.Connect(t)}
		run := r.start(t, r.beating(time.Hour))
		r.recorded(t, w, 4)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(second.Kill())
		r.recorded(t, w, 4) // the first alone has these
		must(first.Kill())
		must(second.Start(t.Context()))
		must(first.Start(t.Context()))
		eventually(t, "the gap is told", func() bool {
			r.commit(t, w, 1, user)
			select {
			case <-run.done: // a leader that knew nothing of the producer took its batch as if nothing had happened
				if !errors.Is(run.err, kafka.ErrTopicReplaced) {
					t.Fatalf("the auditor ended: %v", run.err)
				}
				run.err = nil
				run = r.start(t, r.beating(time.Hour))
			default:
			}
			return len(r.gapsIn(t)) == 2*partitions
		})
		run.end(t)
		r.wantGaps(t, 1)
	})
}

// createOnTwo makes a topic on the first two brokers of three: any of them may lead it, whatever it has.
func (r *rig) createOnTwo(t *testing.T, topic string) {
	t.Helper()
	config := kafkago.TopicConfig{Topic: topic, NumPartitions: -1, ReplicationFactor: -1, ConfigEntries: []kafkago.ConfigEntry{
		{ConfigName: "unclean.leader.election.enable", ConfigValue: "true"}, {ConfigName: "min.insync.replicas", ConfigValue: "1"},
	}}
	for partition := range partitions {
		config.ReplicaAssignments = append(config.ReplicaAssignments, kafkago.ReplicaAssignment{Partition: partition, Replicas: []int{1, 2}})
	}
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(r.broker.Addr()), Transport: transport}
	resp, err := client.CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{config}})
	if err = errors.Join(err, resp.Errors[topic]); err != nil {
		t.Fatal(err)
	}
}
