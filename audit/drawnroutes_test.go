package audit_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// Transactions of every kind are committed while auditors with drawn formats, numbers of partitions and hash keys follow one another,
// each killed at some moment, beside cut streams, a bad network to the brokers, and a server that crashes and has forgotten what was confirmed. What is in the
// topics in the end is what package evidence makes of the same write-ahead log, with the routes that the log has: to the byte.
//
// LAPSE_TEST_SEED repeats a run's choices (not its timing), LAPSE_TEST_ROUNDS makes it longer.
func TestEveryByteFollowsFromTheWALAndTheRoutesOfTheLog(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		seed, rounds := number("LAPSE_TEST_SEED", time.Now().UnixNano()), int(number("LAPSE_TEST_ROUNDS", 4))
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		r := newRig(t, db, kafkatest.Broker(t))
		r.named(t)
		r.makeKept(t)
		copied, want := r.copySlot(t), newExpected()
		r.once(t)
		r.addPartitions(t, 6)
		r.settings.MaxBuffered, r.settings.BeatEvery, r.settings.Network = 64<<10, 200*time.Millisecond, seed

		ctx, finish := context.WithCancel(t.Context())
		defer finish()
		load := &load{rig: r, want: want, random: rand.New(rand.NewPCG(uint64(seed), 1))}
		var working sync.WaitGroup
		working.Go(func() { load.runWith(ctx, 25*time.Millisecond) })
		d := drawing{rig: r, conn: db.Connect(t), random: rand.New(rand.NewPCG(uint64(seed), 2))}
		for range rounds {
			d.round(t, want)
		}
		finish()
		working.Wait()
		if load.err != nil {
			t.Fatal(load.err)
		}
		r.settings.MaxBuffered, r.settings.Chosen = 0, d.choose()
		r.once(t, r.beating(time.Second))
		r.routes = len(r.logRoutes(t))
		t.Logf("%d transactions, %d rows, %d truncates, %d drops, %d routes; the server was killed %d times",
			load.done, len(want.causes), want.truncates, want.drops, r.routes, d.crashes)
		if load.done < 10 {
			t.Error("that shows nothing")
		}
		r.verifyRouted(t, want, load.next)
		r.isAsReread(t, copied)
	})
}

// drawing draws what auditors are told, and what happens to them.
type drawing struct {
	rig     *rig
	random  *rand.Rand
	conn    *pgx.Conn
	crashes int // of the server
}

func (d *drawing) choose() chosen {
	formats := []string{evidence.FormatSpanner, evidence.FormatDebezium, evidence.FormatCloudEvents}
	return chosen{Format: formats[d.random.IntN(len(formats))], Partitions: 1 + d.random.IntN(6), OtherKey: d.random.IntN(2) == 0}
}

// round is the life of an auditor.
func (d *drawing) round(t *testing.T, want *expected) {
	t.Helper()
	r := d.rig
	r.settings.Chosen = d.choose()
	child := startChild(t, r.settings)
	r.db.Exec(t, `insert into named values (gen_random_uuid() || repeat(chr(1), 150000))`, `delete from named`)
	want.add(outcome{verdict: "unclaimed"})
	if d.random.IntN(3) > 0 { // for otherwise many die before they have begun
		at := r.confirmed(t, d.conn)
		within(5*time.Second, func() bool { return r.confirmed(t, d.conn) > at })
	}
	pauseFor(t.Context(), time.Duration(d.random.IntN(1000))*time.Millisecond)
	switch d.random.IntN(5) {
	case 0:
		r.cutStream(t)
		pauseFor(t.Context(), time.Duration(d.random.IntN(500))*time.Millisecond)
	case 1:
		d.crashes++
		err := r.db.Server.Kill()
		if err == nil {
			err = r.db.Server.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		d.conn = r.db.Connect(t)
		pauseFor(t.Context(), time.Duration(d.random.IntN(500))*time.Millisecond)
	}
	child.check(t)
	child.kill()
}
