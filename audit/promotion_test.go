package audit_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// moveTo makes another server the one that is audited.
func (b *bender) moveTo(t *testing.T, db *pgtest.DB) {
	t.Helper()
	b.db, b.settings.URL, b.w.conn = db, db.URL, db.Connect(t)
}

// withFailover makes the slot again, as one that standbys copy.
func (b *bender) withFailover(t *testing.T) {
	t.Helper()
	b.dropSlot(t)
	b.makeSlot(t, true, replication.WithFailover())
}

// intolerant lets a promotion lose nothing.
func intolerant(c *audit.Config) { c.FailoverTolerance = -1 }

// Of one that is up to date: TestAnAuditorGoesOnAtThePromotedStandbyInTheMiddleOfALoad.
func TestAPromotionWithASynchronisedSlotThatIsBehindIsARewind(t *testing.T) {
	bend(t, pgtest.Heavy(t, 17, 18), func(t *testing.T, b *bender) {
		b.withFailover(t)
		b.beat(t)
		standby := b.db.Standby(t)
		run := b.start(t, hasty)
		b.work(t)
		standby.SyncSlot(t, b.settings.Slot)
		b.beat(t)
		b.work(t)
		b.catchUp(t, b.w.conn)
		run.end(t)
		standby.CatchUp(t, b.db)
		standby.Detach(t)
		saved := maps.Clone(b.lives)
		b.work(t)
		b.beat(t)
		b.work(t)
		b.run(t)
		standby.Promote(t)
		b.giveUp(saved)
		b.moveTo(t, standby.DB)
		b.delete(t, 2, user, system)
		b.isBent(t, intolerant)
		b.settled(t, "rewind timeline")
	})
}

func TestAPromotionWithoutASlotIsAGap(t *testing.T) {
	for name, behind := range map[string]bool{"up to date": false, "behind": true} {
		t.Run(name, func(t *testing.T) {
			bend(t, []int{14}, func(t *testing.T, b *bender) {
				b.beat(t)
				standby := b.db.Standby(t)
				b.work(t)
				b.run(t)
				standby.CatchUp(t, b.db)
				standby.Detach(t)
				if behind {
					saved := maps.Clone(b.lives)
					b.work(t)
					b.beat(t)
					b.run(t)
					b.giveUp(saved)
				}
				standby.Promote(t)
				b.moveTo(t, standby.DB)
				b.wantsNewSlot(t)
				b.unread(t)
				b.makeSlot(t, true)
				if behind {
					b.settled(t, "rewind timeline", "gap slot")
				} else {
					b.settled(t, "gap slot")
				}
			})
		})
	}
}

// onHeavyArchive runs a test with a server that archives its WAL.
func onHeavyArchive(t *testing.T, test func(t *testing.T, b *bender, archive *pgserver.Archive)) {
	t.Helper()
	t.Parallel()
	for _, major := range pgtest.Heavy(t, 14, 18) {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) {
			t.Parallel()
			archive := pgtest.NewArchive(t)
			test(t, newBender(t, newRig(t, pgtest.Solo(t, major, pgtest.Archiving(archive)), kafkatest.Broker(t))), archive)
		})
	}
}

// secondRig is a rig with a slot and topics of its own on the same database.
func (b *bender) secondRig(t *testing.T) *bender {
	t.Helper()
	second := newBender(t, &rig{db: b.db, broker: b.broker, settings: b.settings})
	name := kafkatest.Name()
	second.settings.Slot += "_second"
	second.settings.System, second.settings.User, second.settings.Log = name+".system", name+".user", name+".log"
	var err error
	if second.settings.SlotStart, err = replication.CreateSlot(t.Context(), b.w.conn, second.settings.Slot); err != nil {
		t.Fatal(err)
	}
	second.lives = b.lives // the same deletions
	return second
}

//lapse:long
func TestARecoveryToAfterTheLogsEndLosesNothing(t *testing.T) {
	onHeavyArchive(t, func(t *testing.T, b *bender, archive *pgserver.Archive) {
		fresh := b.secondRig(t) // its first start comes after the promotion: the log is new
		copied := b.db.Snapshot(t, pgserver.Backup)
		b.beat(t)
		b.work(t)
		b.run(t)
		b.work(t)
		b.db.Archive(t)
		b.db.Restore(t, copied, pgserver.Recovering(archive, nil, pgserver.Target{}))
		b.w.conn = b.db.Connect(t)
		if timeline := b.db.Timeline(t); timeline != 2 {
			t.Fatalf("timeline %d", timeline)
		}
		b.work(t)
		b.settled(t)
		fresh.recordSlot(t, fresh.settings.SlotStart) // the catalog knows of one slot
		b.beat(t)
		fresh.run(t)
		fresh.holds(t)
	})
}

//lapse:long
func TestTwoRecoveriesToTheSameTimelineAreToldApart(t *testing.T) {
	onHeavyArchive(t, func(t *testing.T, b *bender, archive *pgserver.Archive) {
		b.beat(t)
		b.work(t)
		b.run(t)
		copied := b.db.Snapshot(t, pgserver.Backup)
		b.work(t)
		b.beat(t)
		earlier, then := b.db.FlushLSN(t), maps.Clone(b.lives)
		b.delete(t, 3, user, user)
		later, thereafter := b.db.FlushLSN(t), maps.Clone(b.lives)
		b.work(t)
		b.beat(t)
		b.run(t)
		b.db.Archive(t)

		recover := func(lsn string, saved map[string]int) {
			b.db.Restore(t, copied, pgserver.Recovering(pgtest.Fork(t, archive), nil, pgserver.Target{LSN: lsn}))
			b.w.conn = b.db.Connect(t)
			b.giveUp(saved)
			if timeline := b.db.Timeline(t); timeline != 2 {
				t.Fatalf("timeline %d", timeline)
			}
		}
		recover(earlier, then)
		b.delete(t, 2, user, system)
		b.isBent(t, intolerant)
		b.settled(t, "rewind timeline")

		recover(later, thereafter)
		b.delete(t, 2, user, stale)
		b.accept(t, b.isBent(t))
		b.settled(t, "rewind timeline", "rewind accepted")

		recover(earlier, then)
		b.delete(t, 2, user, stale)
		b.accept(t, b.isBent(t))
		b.settled(t, "rewind timeline", "rewind accepted", "rewind accepted")
	})
}

func TestAnEventOfALostTimelineThatTheLogDoesNotHaveWaitsForAPerson(t *testing.T) {
	onHeavyArchive(t, func(t *testing.T, b *bender, archive *pgserver.Archive) {
		b.beat(t)
		b.work(t)
		b.run(t)
		copied := b.snapshot(t, pgserver.Backup)
		b.db.Archive(t)
		b.forge(t, walEnd(t, b.w.conn)+0x100)
		b.db.Restore(t, copied, pgserver.Recovering(archive, nil, pgserver.Target{}))
		b.w.conn = b.db.Connect(t)
		b.work(t)
		if err := b.tryOnce(t, hasty); !errors.Is(err, history.ErrForeignTail) {
			t.Fatal(err)
		}
	})
}

// A transaction that was half published when its primary died goes with the rest of its timeline.
func TestAnEventOfALostTimelineAboveTheForkStopsNobody(t *testing.T) {
	onHeavyArchive(t, func(t *testing.T, b *bender, archive *pgserver.Archive) {
		b.beat(t)
		b.work(t)
		b.run(t)
		copied := b.db.Snapshot(t, pgserver.Backup)
		b.beat(t)
		earlier, then := b.db.FlushLSN(t), maps.Clone(b.lives)
		b.work(t)
		b.beat(t)
		b.run(t)
		b.db.Archive(t)
		b.forge(t, walEnd(t, b.w.conn)+0x100)
		b.db.Restore(t, copied, pgserver.Recovering(pgtest.Fork(t, archive), nil, pgserver.Target{LSN: earlier}))
		b.w.conn = b.db.Connect(t)
		b.giveUp(then)
		b.delete(t, 2, user, system)
		b.settled(t, "rewind timeline")
	})
}
