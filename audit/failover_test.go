package audit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// failover is an auditor whose primary dies in the middle of a load. What was deleted in the end is asked of the promoted
// standby alone: a commit that it does not have never happened, whatever the dead primary had answered.
type failover struct {
	*bender
	random *rand.Rand
	rows   []int64 // that are to be deleted beside the primary's death; all of them are on the standby
	marked []string
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

// newStandby makes a standby of the primary, which has all the rows that are to be deleted when it is returned. awaited: the slot's
// events wait for it, so that nothing is published that its promotion could lose.
func (f *failover) newStandby(t *testing.T, awaited bool) *pgtest.Standby {
	t.Helper()
	primary := f.db
	standby := primary.Standby(t)
	if awaited {
		primary.Exec(t, fmt.Sprintf(`alter system set synchronized_standby_slots = '%s_standby'`, primary.Name), `select pg_reload_conf()`)
	}
	var err error
	if f.rows, err = f.w.rows(t.Context(), 3000); err != nil {
		t.Fatal(err)
	}
	standby.CatchUp(t, primary)
	f.settings.URL = ofBoth(primary, standby.DB)
	return standby
}

// latestKill is by how many transactions of a load the primary is killed; the rows last for so many.
const latestKill = 60

// killsUnder kills the primary and the others at a random moment of a load, while some of it is on its way to everywhere.
// It returns what was tried. Before another moment it calls before, if that is not nil.
func (f *failover) killsUnder(t *testing.T, before func(), others ...*process) (all []attempt) {
	t.Helper()
	w, tried, first, moment := &writer{conn: f.db.Connect(t)}, make(chan attempt), f.random.IntN(20), 20+f.random.IntN(latestKill-20)
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
		all = append(all, a)
		if len(all) == first+1 && before != nil {
			before()
		}
		if len(all) != moment+1 {
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
	if f.random.IntN(10) == 0 && len(f.rows) >= 300+8*latestKill {
		size = 300 // a part of it may be published when the server dies
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

// promoted makes the standby the server that is audited, and takes what it has of the load into the books. It returns what it does
// not have.
func (f *failover) promoted(t *testing.T, standby *pgtest.Standby, tried []attempt) (lost map[string]bool) {
	t.Helper()
	standby.Promote(t)
	f.db, f.w.conn = standby.DB, standby.Connect(t)
	kept := fixture.One[[]int64](t, f.w.conn, `select coalesce(array_agg(id), '{}') from sessions`)
	gone, lost := 0, map[string]bool{}
	for _, a := range tried {
		there := !slices.Contains(kept, a.ids[0])
		if there {
			gone++
		}
		for key, cause := range causesOf(a.ids, a.cause) {
			if there {
				f.lives[key+" "+cause]++
			} else {
				lost[key+" "+cause] = true
			}
		}
	}
	t.Logf("of %d transactions that were tried the promoted standby has %d", len(tried), gone)
	return lost
}

// outlive has the primary die, and the auditor that runs find the promoted standby by itself.
func (f *failover) outlive(t *testing.T) {
	t.Helper()
	standby := f.newStandby(t, true)
	run := f.start(t, f.beating(200*time.Millisecond))
	f.work(t)
	standby.SyncSlot(t, f.settings.Slot)
	f.promoted(t, standby, f.killsUnder(t, nil))
	f.goesOn(t, run)
	f.holds(t, f.marked...)
}

// fallBehind is outlive with a standby that nobody waits for, and that lacks the last commits. Of these the auditor has published
// some, which a rewind says.
func (f *failover) fallBehind(t *testing.T) {
	t.Helper()
	standby := f.newStandby(t, false)
	run := f.start(t, f.beating(200*time.Millisecond))
	f.work(t)
	standby.SyncSlot(t, f.settings.Slot)
	lost := f.promoted(t, standby, f.killsUnder(t, func() { standby.Detach(t) }))
	f.goesOn(t, run)
	heard := f.listen(t)
	for key, n := range heard.void {
		if n > f.truth.lost[key] && !lost[key] {
			t.Errorf("%s is given up, and nobody lost it", key)
		}
		f.truth.lost[key] = n
	}
	if len(heard.markers) > len(f.marked) {
		f.marked = append(f.marked, "rewind timeline")
	}
	f.holds(t, f.marked...)
}

// goesOn wants an auditor that runs to go on.
func (f *failover) goesOn(t *testing.T, run *running) {
	t.Helper()
	f.work(t)
	f.catchUp(t, f.w.conn)
	select {
	case <-run.done:
		t.Fatalf("the auditor has ended by itself: %v", run.err)
	default:
	}
	run.end(t)
}

// A standby that the slot's events wait for may be away. The server warns that it waits, and when it stops meanwhile it says so as an
// error: neither says that a publication or the slot is gone, and nothing ends the auditor, which goes on once the standby is there
// or nobody waits for it any more.
func TestAnAuditorWaitsForAStandbyThatIsAway(t *testing.T) {
	bend(t, []int{17, 18}, func(t *testing.T, b *bender) {
		b.withFailover(t)
		run := b.start(t, b.beating(200*time.Millisecond))
		b.work(t)
		b.catchUp(t, b.w.conn)
		away := b.db.Name + "_away"
		b.db.Exec(t, fmt.Sprintf(`select pg_create_physical_replication_slot('%s')`, away),
			fmt.Sprintf(`alter system set synchronized_standby_slots = '%s'`, away), `select pg_reload_conf()`)
		waits := func() bool {
			return fixture.One[bool](t, b.w.conn, `select exists (select from pg_stat_activity where backend_type = 'walsender' and wait_event = 'WaitForStandbyConfirmation')`)
		}
		b.work(t)
		eventually(t, "the server waits for the standby", waits)
		if err := b.db.Server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		if err := b.db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.w.conn = b.db.Connect(t)
		b.work(t)
		eventually(t, "the server waits for the standby again", waits)
		b.db.Exec(t, `alter system reset synchronized_standby_slots`, `select pg_reload_conf()`)
		b.catchUp(t, b.w.conn)
		select {
		case <-run.done:
			t.Fatalf("the auditor has ended by itself: %v", run.err)
		default:
		}
		run.end(t)
		b.holds(t)
	})
}

// dieTogether has the auditor die with its primary, in the middle of what it publishes, and another one go on.
func (f *failover) dieTogether(t *testing.T) {
	t.Helper()
	standby := f.newStandby(t, true)
	f.settings.BeatEvery, f.settings.MaxBuffered = 200*time.Millisecond, 16<<10
	child := startChild(t, f.settings)
	f.work(t)
	standby.SyncSlot(t, f.settings.Slot)
	f.promoted(t, standby, f.killsUnder(t, nil, child))
	child = startChild(t, f.settings)
	f.work(t)
	f.catchUp(t, f.w.conn)
	child.check(t)
	child.kill()
	f.holds(t, f.marked...)
}

// TestAnAuditorGoesOnAtThePromotedStandbyInTheMiddleOfALoad has a slot with failover followed from one server to the next. What was
// deleted before, during and after the death of a primary is in its topic once, in order, under its cause, without a gap, and without
// a rewind where events wait for the standby. LAPSE_TEST_SEED repeats the choices, and LAPSE_TEST_FAILOVERS makes it longer.
//
//lapse:long
func TestAnAuditorGoesOnAtThePromotedStandbyInTheMiddleOfALoad(t *testing.T) {
	bend(t, []int{17, 18}, func(t *testing.T, b *bender) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		f := &failover{bender: b, random: rand.New(rand.NewPCG(uint64(seed), uint64(b.db.Major)))}
		f.withFailover(t)
		for n := range number("LAPSE_TEST_FAILOVERS", 2) {
			[]func(*testing.T){f.outlive, f.dieTogether, f.fallBehind}[n%3](t)
		}
	})
}
