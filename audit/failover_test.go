package audit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// failover is an auditor whose primary dies in the middle of a load. What was deleted in the end is asked of the promoted
// standby alone: a commit that it does not have never happened, whatever the dead primary had answered.
type failover struct {
	*bender
	random *rand.Rand
	rows   []int64 // that are to be deleted beside the primary's death; all of them are on the standby
}

// attempt is one transaction of the load.
type attempt struct {
	ids   []int64
	cause string
}

// ofBoth is a connection string that finds the primary of two servers.
func ofBoth(a, b *pgtest.DB) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		a.Server.Port(), b.Server.Port(), a.Name)
}

// standbyOf makes a standby for which the slot's events wait, so that nothing is published that a promotion could lose. It
// has all the rows that are to be deleted when it is returned.
func (f *failover) standbyOf(t *testing.T, primary *pgtest.DB) *pgtest.Standby {
	t.Helper()
	standby := primary.Standby(t)
	primary.Exec(t, fmt.Sprintf(`alter system set synchronized_standby_slots = '%s_standby'`, primary.Name), `select pg_reload_conf()`)
	var err error
	if f.rows, err = f.w.rows(t.Context(), 3000); err != nil {
		t.Fatal(err)
	}
	standby.CatchUp(t, primary)
	f.settings.URL = ofBoth(primary, standby.DB)
	return standby
}

// killsUnder kills the primary at a random moment of a load, while some of it is on its way to everywhere, and whoever else is
// to die with it. It returns what was tried.
func (f *failover) killsUnder(t *testing.T, others ...*process) (all []attempt) {
	t.Helper()
	w, tried, moment := &writer{conn: f.db.Connect(t)}, make(chan attempt), f.random.IntN(60)
	go func() {
		defer close(tried)
		for len(f.rows) > 0 {
			do, a := f.draw()
			tried <- a
			if err := w.commit(t.Context(), newExpected(), do); err != nil {
				if !w.conn.IsClosed() {
					t.Error(err)
				}
				return
			}
		}
	}()
	for a := range tried {
		if all = append(all, a); len(all) != moment+1 {
			continue
		}
		if err := f.db.Server.Kill(); err != nil {
			t.Error(err)
		}
		for _, other := range others {
			other.kill()
		}
	}
	return all
}

// draw draws the next transaction.
func (f *failover) draw() (transaction, attempt) {
	size := 1 + f.random.IntN(8)
	if f.random.IntN(10) == 0 {
		size = 300 // of which a part may be published when the server dies
	}
	a := attempt{ids: f.rows[:min(size, len(f.rows))], cause: "user"}
	f.rows = f.rows[len(a.ids):]
	switch f.random.IntN(3) {
	case 0:
		a.cause = "system"
		return batch(a.ids, nil), a
	case 1:
		return forger(a.ids), a
	default:
		return user(a.ids), a
	}
}

// promoted makes the standby the server that is audited, and takes what it has of the load into the books.
func (f *failover) promoted(t *testing.T, standby *pgtest.Standby, tried []attempt) {
	t.Helper()
	standby.Promote(t)
	f.db, f.w.conn = standby.DB, standby.Connect(t)
	kept := fixture.One[[]int64](t, f.w.conn, `select coalesce(array_agg(id), '{}') from sessions`)
	gone := 0
	for _, a := range tried {
		if slices.Contains(kept, a.ids[0]) {
			continue
		}
		gone++
		for key, cause := range causesOf(a.ids, a.cause) {
			f.lives[key+" "+cause]++
		}
	}
	t.Logf("of %d transactions that were tried the promoted standby has %d", len(tried), gone)
}

// outlive has the primary die, and the auditor that runs find the promoted standby by itself.
func (f *failover) outlive(t *testing.T) {
	t.Helper()
	standby := f.standbyOf(t, f.db)
	run := f.start(t, f.beating(200*time.Millisecond))
	f.work(t)
	standby.SyncSlot(t, f.settings.Slot)
	f.promoted(t, standby, f.killsUnder(t))
	f.work(t)
	f.catchUp(t, f.w.conn)
	select {
	case <-run.done:
		t.Fatalf("the auditor has ended by itself: %v", run.err)
	default:
	}
	run.end(t)
	f.holds(t)
}

// dieTogether has the auditor die with its primary, in the middle of what it publishes, and another one go on.
func (f *failover) dieTogether(t *testing.T) {
	t.Helper()
	standby := f.standbyOf(t, f.db)
	f.settings.BeatEvery, f.settings.MaxBuffered = 200*time.Millisecond, 16<<10
	child := startChild(t, f.settings)
	f.work(t)
	standby.SyncSlot(t, f.settings.Slot)
	f.promoted(t, standby, f.killsUnder(t, child))
	child = startChild(t, f.settings)
	f.work(t)
	f.catchUp(t, f.w.conn)
	child.check(t)
	child.kill()
	f.holds(t)
}

// TestAnAuditorGoesOnAtThePromotedStandbyInTheMiddleOfALoad has a slot with failover followed from one server to the next. What was
// deleted before, during and after the death of a primary is in its topic once, in order, under its cause, without a gap or a
// rewind. LAPSE_TEST_SEED repeats the choices, and LAPSE_TEST_FAILOVERS makes it longer.
func TestAnAuditorGoesOnAtThePromotedStandbyInTheMiddleOfALoad(t *testing.T) {
	bend(t, []int{17, 18}, func(t *testing.T, b *bender) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		f := &failover{bender: b, random: rand.New(rand.NewPCG(uint64(seed), uint64(b.db.Major)))}
		f.withFailover(t)
		for n := range number("LAPSE_TEST_FAILOVERS", 2) {
			if n%2 == 0 {
				f.outlive(t)
			} else {
				f.dieTogether(t)
			}
		}
	})
}
