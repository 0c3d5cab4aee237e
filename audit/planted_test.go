package audit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// onBender runs a test on the oldest and the newest PostgreSQL, with the shared servers.
func onBender(t *testing.T, test func(t *testing.T, b *bender)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) { test(t, newBender(t, newRig(t, db, kafkatest.Broker(t)))) })
}

// onHeavyBender is onBender for what costs much: see pgtest.Heavy.
func onHeavyBender(t *testing.T, test func(t *testing.T, b *bender)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { test(t, newBender(t, newRig(t, db, kafkatest.Broker(t)))) })
}

// plant writes a record into each partition of a topic; one with headers looks like an event at that place.
func (b *bender) plant(t *testing.T, topic, value string, place map[string]string) {
	t.Helper()
	var headers []kafka.Header
	if place != nil {
		for _, record := range b.read(t, b.settings.User) {
			if record.Header("lapse-op") != "delete" {
				continue
			}
			value = string(record.Value)
			headers = nil
			for _, name := range []string{
				"lapse-cause", "lapse-op", "lapse-table", "lapse-xid", "lapse-seq", "lapse-sysid", "lapse-db", "lapse-schema",
			} {
				headers = append(headers, kafka.Header{Key: name, Value: []byte(record.Header(name))})
			}
		}
		for name, text := range place {
			headers = append(headers, kafka.Header{Key: name, Value: []byte(text)})
		}
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.settings.Broker), Transport: transport}
	for partition := range partitions {
		eventually(t, "the record is planted", func() bool { // a topic that was just made has no leader yet
			resp, err := client.Produce(t.Context(), &kafka.ProduceRequest{
				Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
				Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value)), Headers: headers}),
			})
			return err == nil && resp.Error == nil
		})
	}
}

func standing(history, timeline, lsn string) map[string]string {
	return map[string]string{"lapse-history": history, "lapse-tli": timeline, "lapse-lsn": lsn}
}

func (b *bender) deletions(t *testing.T) (n int) {
	t.Helper()
	for _, topic := range []string{b.settings.User, b.settings.System} {
		for _, record := range b.read(t, topic) {
			if record.Header("lapse-op") == "delete" {
				n++
			}
		}
	}
	return n
}

// A record at a place that the server cannot have sent would hide every later event of its partition, or be waited for.
func TestAnEventThatTheServerCannotHaveSentIsRefusedAtOnce(t *testing.T) {
	for name, at := range map[string]map[string]string{
		"another history, low": standing("99", "1", "0000000000000001"),
		"a timeline to come":   standing("1", "7", "0000000000000001"),
		"the farthest history": standing("1073741823", "1", "00000000FFFFFFF0"),
	} {
		t.Run(name, func(t *testing.T) {
			onHeavyBender(t, func(t *testing.T, b *bender) {
				b.beat(t)
				b.work(t)
				b.run(t)
				b.plant(t, b.settings.User, "", at)
				before := b.deletions(t)
				b.delete(t, 3, user)
				b.refused(t, history.ErrForeignTail)
				b.accept(t, b.check(t))
				b.run(t)
				if n := b.deletions(t) - before; n != 9 { // three sessions, two notes each
					t.Errorf("%d events of 9 deletions", n)
				}
			})
		})
	}
}

// What cannot be a history is no event, and is stepped over.
func TestAnEventOfAnImpossibleHistoryIsForeign(t *testing.T) {
	onHeavyBender(t, func(t *testing.T, b *bender) {
		b.work(t)
		b.run(t)
		b.plant(t, b.settings.User, "", standing("2147483647", "1", "0000000000000001"))
		before := b.deletions(t)
		b.delete(t, 3, user)
		b.run(t)
		if n := b.deletions(t) - before; n != 9 {
			t.Errorf("%d events of 9 deletions", n)
		}
	})
}

// Somebody mirrors old events into their own topic while a transaction is half published: what is there is not sent twice.
func TestACopyOfAnOldEventDoublesNothing(t *testing.T) {
	onHeavyBender(t, func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		ids, err := b.w.rows(t.Context(), 5000)
		if err == nil {
			err = b.w.commit(t.Context(), newExpected(), user(ids))
		}
		if err != nil {
			t.Fatal(err)
		}
		before := b.deletions(t)
		b.settings.MaxBuffered = 64 << 10
		child := startChild(t, b.settings)
		eventually(t, "some are published", func() bool { return b.deletions(t) > before })
		child.kill()
		b.settings.MaxBuffered = 0
		b.plant(t, b.settings.User, "", standing("1", "1", "0000000000000001"))
		planted := b.deletions(t)
		t.Logf("%d events were published when the auditor was killed", planted-before-partitions)
		b.run(t)
		if n := b.deletions(t) - before - partitions; n != 15_000 {
			t.Errorf("%d events of 15000 deletions", n)
		}
	})
}

// The offsets of a topic that was made again and filled say nothing; the fences do.
func TestATopicThatIsMadeAgainAndFilledIsAGap(t *testing.T) {
	onHeavyBender(t, func(t *testing.T, b *bender) {
		b.work(t)
		b.beat(t)
		b.once(t, b.beating(time.Minute))
		b.deleteTopic(t, b.settings.User)
		if err := b.broker.CreateTopic(t.Context(), b.settings.User, partitions, nil); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			b.plant(t, b.settings.User, "hello", nil)
		}
		b.once(t, b.beating(time.Minute))
		if gaps := b.gaps(t); len(gaps) != 1 || gaps[0].Reason != "topic" {
			t.Errorf("gaps %+v, want one", gaps)
		}
	})
}

// A true batch of before an acceptance proves nothing above the fork, and nobody else's key made it.
func TestATrueBatchUnderAFormerHistoryIsNoAlarm(t *testing.T) {
	onBender(t, func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		b.forge(t, 1<<40)
		b.delete(t, 2, system)
		b.accept(t, b.check(t))
		b.run(t, func(c *audit.Config) {
			c.OnAlarm(func(_ context.Context, reason string) error {
				t.Errorf("an alarm: %s", reason)
				return nil
			})
		})
	})
}

// An accepted copy would end the auditor of an original that lives; what strangers write is no auditor's.
func TestWatchingALogTellsALivingAuditorFromStrangers(t *testing.T) {
	onHeavyBender(t, func(t *testing.T, b *bender) {
		b.beat(t)
		b.run(t)
		config := b.settings.config()
		watched := make(chan error, 1)
		go func() { watched <- audit.WatchLog(t.Context(), config, 3*time.Second) }()
		for watching := true; watching; {
			select {
			case err := <-watched:
				watching = false
				if err != nil {
					t.Errorf("beside strangers: %v", err)
				}
			default:
				b.echo(t, b.settings.Log, "hello")
			}
		}
		run := b.start(t, b.beating(200*time.Millisecond))
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		if err := audit.WatchLog(t.Context(), config, 10*time.Second); !errors.Is(err, history.ErrOtherAuditor) {
			t.Errorf("beside a living auditor: %v", err)
		}
	})
}
