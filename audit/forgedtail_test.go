package audit_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// forge writes what looks like an event of this database at a position, after a true event in partition 0.
func (b *bender) forge(t *testing.T, at schemas.LSN) {
	t.Helper()
	var model *kafkatest.Record
	for _, record := range b.read(t, b.settings.User) {
		if record.Partition == 0 && record.Header("lapse-op") == "delete" {
			model = &record
		}
	}
	if model == nil {
		t.Fatal("no event to forge by")
	}
	var e happening
	if err := json.Unmarshal(model.Value, &e); err != nil {
		t.Fatal(err)
	}
	value := strings.ReplaceAll(string(model.Value), `"`+e.Lapse.CommitLSN+`"`, `"`+at.String()+`"`)
	value = strings.ReplaceAll(value, hexOf(lsnOf(t, e.Lapse.CommitLSN)), hexOf(at))
	headers := []kafka.Header{}
	for _, name := range []string{
		"lapse-cause", "lapse-op", "lapse-table", "lapse-xid", "lapse-seq", "lapse-sysid", "lapse-db", "lapse-history", "lapse-tli", "lapse-schema",
	} {
		headers = append(headers, kafka.Header{Key: name, Value: []byte(model.Header(name))})
	}
	b.echo(t, b.settings.User, value, append(headers, kafka.Header{Key: "lapse-lsn", Value: []byte(hexOf(at))})...)
	b.lost[rowKey(e.Table, "")+" user"]++ // a consumer must be told that it never happened
}

func TestAForgedTailHidesNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		b := newBender(t, newRig(t, db, kafkatest.Broker(t)))
		b.beat(t)
		b.work(t)
		var markers []string
		for _, ahead := range []schemas.LSN{1 << 40, 0x80, 0x800} {
			b.run(t)
			b.forge(t, walEnd(t, b.w.conn)+ahead)
			for range 10 {
				b.delete(t, 2, user)
			}
			b.refused(t, history.ErrForeignTail, hasty)
			if found := b.check(t); found.Outcome != history.OutcomeBent || !strings.Contains(found.Why, history.ErrForeignTail.Error()) {
				t.Errorf("the check says %s, %q", found.Outcome, found.Why)
			}
			b.accept(t, b.check(t))
			markers = append(markers, "rewind accepted")
			b.settled(t, markers...)
		}
	})
}

func TestALivingAuditorWaitsUntilAPersonHasAccepted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		b := newBender(t, newRig(t, db, kafkatest.Broker(t)))
		b.work(t)
		b.run(t)
		b.forge(t, 1<<40)
		metrics := audit.NewMetrics()
		run := b.start(t, hasty, func(c *audit.Config) { c.Metrics = metrics })
		b.delete(t, 2, user, stale)
		eventually(t, "the auditor says why it is not ready", func() bool {
			err := run.Ready()
			return err != nil && strings.Contains(err.Error(), history.ErrForeignTail.Error())
		})
		if gather(t, metrics)["lapse_history_bent"] != 1 {
			t.Error("the metric does not say so")
		}
		var found *history.Result
		eventually(t, "the slot is free between two checks", func() (free bool) {
			config := b.settings.config()
			var err error
			found, err = audit.CheckHistory(t.Context(), config)
			return err == nil
		})
		b.accept(t, found)
		eventually(t, "the auditor goes on by itself", func() bool { return run.Ready() == nil })
		if gather(t, metrics)["lapse_history_bent"] != 0 {
			t.Error("the metric still says so")
		}
		b.catchUp(t, b.w.conn)
		run.end(t)
		b.holds(t, "rewind accepted")
	})
}

// The commit of a transaction that was under way when the log's last one committed is where that one ends: at the fork.
func TestACommitAtTheForkIsNotTakenForTheMarker(t *testing.T) {
	bend(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, b *bender) {
		b.work(t)
		var markers []string
		met := false
		for range 5 {
			next := &bender{rig: b.rig, w: &writer{conn: b.db.Connect(t), next: b.w.next + 1000}, truth: b.truth}
			ids, err := next.w.rows(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := next.w.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := user(ids)(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			b.delete(t, 1, user)
			b.run(t)
			b.forge(t, 1<<40)
			fork := b.check(t).LogEnd.LSN
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			for key := range causesOf(ids, "user") {
				b.lives[key+" user"]++
			}
			b.w.next += 2000
			b.accept(t, b.check(t))
			b.run(t)
			markers = append(markers, "rewind accepted")
			b.holds(t, markers...)
			for _, record := range b.read(t, b.settings.User) {
				met = met || record.Header("lapse-op") == "delete" && record.Header("lapse-lsn") == hexOf(fork) &&
					record.Header("lapse-history") == strconv.Itoa(len(markers)+1)
			}
			if met {
				return
			}
		}
		t.Error("no commit was at the fork: the test shows nothing")
	})
}

// hexOf is a position as headers have it.
func hexOf(at schemas.LSN) string { return fmt.Sprintf("%016X", uint64(at)) }
