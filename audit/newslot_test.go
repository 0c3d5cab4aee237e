package audit_test

import (
	"errors"
	"strings"
	"testing"

	"lapse/audit/history"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// makeSlot makes the slot, by hand or, recorded, as lapse init --new-slot does.
func (b *bender) makeSlot(t *testing.T, recorded bool, options ...replication.SlotOption) {
	t.Helper()
	start, err := replication.CreateSlot(t.Context(), b.w.conn, b.settings.Slot, options...)
	if err != nil {
		t.Fatal(err)
	}
	if !recorded {
		return
	}
	_, err = b.w.conn.Exec(t.Context(),
		`update lapse.installation set slot_start = $1::text::pg_lsn, slot_made_at = clock_timestamp()`, start.String())
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bender) dropSlot(t *testing.T) {
	t.Helper()
	if err := replication.DropSlot(t.Context(), b.w.conn, b.settings.Slot); err != nil {
		t.Fatal(err)
	}
}

// unread deletes what no slot sees.
func (b *bender) unread(t *testing.T) {
	t.Helper()
	b.commit(t, b.w, 3, user)
}

// wantsNewSlot wants the auditor to name what to do about a slot that cannot be read.
func (b *bender) wantsNewSlot(t *testing.T) {
	t.Helper()
	err := b.tryOnce(t, hasty)
	var lost *replication.SlotError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "--new-slot") {
		t.Errorf("%v does not say what to do", err)
	}
}

func TestASlotThatWasDroppedIsAGapInTheSameTopics(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		for range 2 {
			b.dropSlot(t)
			b.wantsNewSlot(t)
			b.unread(t)
			b.makeSlot(t, false)
			b.unread(t)
			b.refused(t, history.ErrLogBehind, hasty)
			b.dropSlot(t)
			b.makeSlot(t, true)
			b.work(t)
			b.run(t)
			b.run(t)
		}
		b.settled(t, "gap slot", "gap slot")
	})
}

func TestASlotThatTheServerInvalidatedIsAGapInTheSameTopics(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.beat(t)
		b.work(t)
		b.run(t)
		eventually(t, "the server invalidates the slot", func() bool {
			b.db.Exec(t, `select pg_logical_emit_message(false, '', repeat('x', 1000)) from generate_series(1, 1000)`,
				`select pg_switch_wal()`, `checkpoint`)
			var status string
			err := b.w.conn.QueryRow(t.Context(),
				`select wal_status from pg_replication_slots where slot_name = $1`, b.settings.Slot).Scan(&status)
			return err == nil && status == "lost"
		})
		b.wantsNewSlot(t)
		b.unread(t)
		b.dropSlot(t)
		b.makeSlot(t, true)
		b.settled(t, "gap slot")
	}, pgtest.Settings(map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}))
}

//lapse:long
func TestABaseBackupThatWasStartedWithoutRecoveryIsNoticed(t *testing.T) {
	cases := []struct {
		name          string
		grown, beaten bool
	}{
		{name: "its slot begins below the log's end", beaten: true},
		{name: "its slot begins above the log's end", grown: true, beaten: true},
		{name: "its slot begins below the log's end, and all heartbeats are there"},
		{name: "its slot begins above the log's end, and all heartbeats are there", grown: true},
	}
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		var markers []string
		for _, c := range cases {
			t.Log(c.name)
			b.beat(t)
			b.run(t)
			copied := b.snapshot(t, pgserver.Backup)
			b.work(t)
			if c.beaten {
				b.beat(t)
			}
			b.grow(t)
			b.work(t)
			b.run(t)
			b.restore(t, copied, pgserver.WithoutSlots(), pgserver.WithoutBackupLabel())
			b.unread(t)
			if c.grown {
				b.grow(t)
				b.grow(t)
			}
			b.wantsNewSlot(t)
			b.makeSlot(t, true)
			b.delete(t, 2, user)
			if !c.grown && !c.beaten {
				b.grow(t) // what the server has written alone does not show it
				b.grow(t)
			}
			b.accept(t, b.isBent(t))
			markers = append(markers, "rewind accepted", "gap slot")
			b.settled(t, markers...)
		}
	})
}
