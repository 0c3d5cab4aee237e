package audit_test

import (
	"testing"

	"lapse/internal/pgserver"
)

func TestARestoredSnapshotIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		beatBehind bool // the copy is taken before the log's last heartbeat
		grown      bool // the restored server has written more than the log has when the auditor starts
	}{
		"its last heartbeat is not there":        {beatBehind: true},
		"its last heartbeat is there":            {},
		"grown, its last heartbeat is not there": {beatBehind: true, grown: true},
		"grown, and all heartbeats are there":    {grown: true},
	} {
		t.Run(name, func(t *testing.T) {
			bend(t, []int{14, 18}, func(t *testing.T, b *bender) {
				b.beat(t)
				b.work(t)
				b.run(t)
				copied := b.snapshot(t, pgserver.Frozen)
				b.work(t)
				if c.beatBehind {
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
				b.settled(t, "rewind accepted")
			})
		})
	}
}

// grow writes WAL that nobody deletes anything in, more than any past here has.
func (b *bender) grow(t *testing.T) {
	t.Helper()
	b.db.Exec(t, `create table ballast as select repeat('x', 1000) from generate_series(1, 2000)`, `drop table ballast`)
}

func TestASnapshotThatIsRestoredTwiceIsNoticedTwice(t *testing.T) {
	bend(t, []int{14, 18}, func(t *testing.T, b *bender) {
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
