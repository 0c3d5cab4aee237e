//go:build torture

package audit_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// TestNothingIsMissingOrTwiceUnderTorture is make torture. Three brokers, an auditor and a second one that waits for its
// slot; leaders of partitions, both auditors and PostgreSQL are killed with -9, or frozen for longer than their sessions
// last and let go on, and leaders are moved, at random moments of a load of every kind of transaction. Requests to the
// brokers and their answers are lost, cut, delayed and doubled. Afterwards everything that was committed is in its topic
// once, in order, under its cause, and the log agrees.
//
// An auditor that was frozen until the other had taken over is a zombie: it has events that it has not sent. When it goes
// on it must not get one into a topic. One that is told so ("fenced") ends, and does not take slot and topics again.
//
// In one run of two each auditor is told another format, number of partitions and hash key than the one before.
//
// LAPSE_TORTURE is the minutes, LAPSE_TEST_SEED repeats a run's choices (not its timing), LAPSE_PG=14 leaves 18 out.
func TestNothingIsMissingOrTwiceUnderTorture(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		minutes := time.Duration(number("LAPSE_TORTURE", 5)) * time.Minute
		routed := (seed+int64(db.Major/4))%2 == 0 // with one seed, on one of the two
		t.Logf("SEED=%d, %s, drawn routes: %v", seed, minutes, routed)
		// About as much in a long run as in a short one: what is to be compared in the end is in memory.
		torture := newTorture(t, db, seed, 20*time.Millisecond*minutes/time.Minute, routed)
		for time.Since(torture.began) < minutes && !t.Failed() {
			torture.round()
		}
		torture.end()
	}, impatient)
}

// A hundred times: LAPSE_TEST_KILLS is another number.
func TestAHundredKillsOfTheAuditorLeaveEachEventOnce(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		kills, seed := int(number("LAPSE_TEST_KILLS", 100)), number("LAPSE_TEST_SEED", time.Now().UnixNano())
		random := rand.New(rand.NewPCG(uint64(seed), 4))
		t.Logf("SEED=%d, %d kills", seed, kills)
		r := newRig(t, db, kafkatest.Solo(t, kafkaserver.Options{}))
		r.settings.MaxBuffered = 256 << 10
		whileLoaded(t, r, seed, 50*time.Millisecond, func() {
			for range kills {
				child := startChild(t, r.settings)
				pauseFor(t.Context(), time.Duration(random.Int64N(int64(3*time.Second))))
				child.check(t)
				child.kill()
			}
		})
	}, impatient)
}

// All brokers are away for LAPSE_TEST_OUTAGE minutes: ten. The auditor that was there when it began is there when it ends;
// one that was started meanwhile waits for its slot, and takes over in the end.
func TestTenMinutesWithoutABrokerLoseNothing(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		outage, seed := time.Duration(number("LAPSE_TEST_OUTAGE", 10))*time.Minute, number("LAPSE_TEST_SEED", time.Now().UnixNano())
		t.Logf("SEED=%d, %s", seed, outage)
		r := newRig(t, db, kafkatest.Solo(t, kafkaserver.Options{}))
		// As much in a long outage as in a short one: what is to be compared in the end is in memory.
		whileLoaded(t, r, seed, max(50*time.Millisecond, outage/3000), func() {
			first := startChild(t, r.settings)
			pauseFor(t.Context(), 5*time.Second)
			if err := r.broker.Kill(); err != nil {
				t.Fatal(err)
			}
			pauseFor(t.Context(), outage/2)
			second := startChild(t, r.settings)
			pauseFor(t.Context(), outage/2)
			first.check(t)
			second.check(t)
			if err := r.broker.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			conn := db.Connect(t)
			end := walEnd(t, conn)
			if !within(5*patience, func() bool { return r.confirmed(t, conn) >= end }) {
				t.Error("the auditor does not catch up")
			}
			first.kill()
			pauseFor(t.Context(), 5*time.Second)
			second.check(t)
			second.kill()
		})
	}, impatient)
}

// whileLoaded does something beside a load of every kind of transaction, with a pause between two of them, and compares what was
// committed with the topics.
func whileLoaded(t *testing.T, r *rig, seed int64, gap time.Duration, do func()) {
	t.Helper()
	r.settings.BeatEvery, r.settings.Network = time.Second, seed
	r.makeKept(t)
	want := newExpected()
	ctx, finish := context.WithCancel(t.Context())
	defer finish()
	load := &load{rig: r, want: want, random: rand.New(rand.NewPCG(uint64(seed), 1))}
	var working sync.WaitGroup
	working.Go(func() { load.runWith(ctx, gap) })
	do()
	finish()
	working.Wait()
	if load.err != nil {
		t.Fatal(load.err)
	}
	r.settings.MaxBuffered = 0
	r.once(t, r.beating(time.Second))
	t.Logf("%d transactions, %d rows, %d truncates, %d drops", load.done, len(want.causes), want.truncates, want.drops)
	r.verify(t, want)
}
