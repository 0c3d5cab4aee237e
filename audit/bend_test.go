package audit_test

import (
	"testing"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

func TestARestoredSnapshotIsNoticed(t *testing.T) {
	cases := []struct {
		name  string
		beat  bool // the copy is taken before the log's last heartbeat
		grown bool // the restored server has written more than the log has when the auditor starts
	}{
		{name: "its last heartbeat is not there", beat: true},
		{name: "its last heartbeat is there"},
		{name: "grown, its last heartbeat is not there", beat: true, grown: true},
		{name: "grown, and all heartbeats are there", grown: true},
	}
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		var markers []string
		for _, c := range cases {
			t.Log(c.name)
			b.beat(t)
			b.work(t)
			b.run(t)
			copied := b.snapshot(t, pgserver.Frozen)
			b.work(t)
			if c.beat {
				b.beat(t)
				b.work(t)
			}
			b.run(t)
			b.restore(t, copied)
			b.delete(t, 2, user, stale)
			if c.grown {
				b.grow(t)
				b.delete(t, 2, user, stale)
			}
			b.accept(t, b.isBent(t))
			markers = append(markers, "rewind accepted")
			b.settled(t, markers...)
		}
	})
}

// grow writes WAL that nobody deletes anything in, more than any past here has.
func (b *bender) grow(t *testing.T) {
	t.Helper()
	b.db.Exec(t, `create table ballast as select repeat('x', 1000) from generate_series(1, 2000)`, `drop table ballast`)
}

//lapse:long
func TestASnapshotThatIsRestoredTwiceIsNoticedTwice(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		older := b.snapshot(t, pgserver.Frozen)
		b.work(t)
		b.run(t)
		copied := b.snapshot(t, pgserver.Frozen)
		b.work(t)
		b.run(t)
		for i, from := range []*pgserver.Copy{copied, copied, older} {
			b.restore(t, from)
			b.delete(t, 2, user)
			found := b.isBent(t)
			if next := b.accept(t, found); int(next) != i+2 {
				t.Errorf("history %d was accepted, want %d", next, i+2)
			}
			b.run(t)
			b.work(t)
			b.beat(t)
			b.work(t)
			b.run(t)
		}
		b.holds(t, "rewind accepted", "rewind accepted", "rewind accepted")
	})
}
