package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// dying ends its process by kill -9 at one step of the first transaction that has a heartbeat among its deletes.
type dying struct {
	before  string
	atEvent int // or at so many events; 0: not by that
	events  int
	gap     bool // a gap's record is on its way
}

// The steps at which a crash leaves a different state.
const (
	firstAck     = "the first event's acknowledgement"
	nextEvent    = "an event, after one that is acknowledged"
	firstRecord  = "the first record"
	secondRecord = "the second record, after one that is acknowledged"
	confirmation = "the confirmation"
	secondGap    = "the second gap of a heartbeat, after one that is acknowledged"
	theRoute     = "a route, after the log's origin or another record"
	afterRoute   = "the confirmation of a route"
	secondTables = "the second record of a heartbeat's tables, after one that is acknowledged"
	slotGap      = "the gap of a slot that was made again, after the route"
	secondPolicy = "the second record of a policy, after one that is acknowledged"
	afterPolicy  = "the confirmation of a policy"
	gapsEnds     = "the fence after a gap, which is acknowledged"
)

func (d *dying) at(before string, record *evidence.Entry, acked func() bool) {
	beat := record != nil && record.Kind == evidence.KindCoverage && record.Position.Seq == 1
	if before == "event" {
		d.events++
	}
	d.gap = d.gap || before == "record" && record.Kind == evidence.KindGap
	switch {
	case d.atEvent > 0:
		if before != "event" || d.events < d.atEvent {
			return
		}
	case d.before == firstAck && d.events == 2:
	case d.before == nextEvent && d.events == 3,
		d.before == firstRecord && before == "record" && record.Kind == evidence.KindTransaction,
		d.before == secondRecord && before == "record" && beat,
		d.before == secondGap && before == "record" && record.Kind == evidence.KindGap && record.Position.Seq == 1,
		d.before == theRoute && before == "record" && record.Kind == evidence.KindRoute,
		d.before == afterRoute && before == "confirm" && record.Kind == evidence.KindRoute,
		d.before == slotGap && before == "record" && record.Kind == evidence.KindGap,
		d.before == secondPolicy && before == "record" && record.Kind == evidence.KindPolicy && record.Position.Seq == 1,
		d.before == afterPolicy && before == "confirm" && record.Kind == evidence.KindPolicy,
		d.before == gapsEnds && before == "ends" && d.gap,
		d.before == secondTables && before == "record" && record.Kind == evidence.KindCoverage && record.Position.Seq == 2,
		d.before == confirmation && before == "confirm" && beat:
		for deadline := time.Now().Add(patience); !acked() && time.Now().Before(deadline); {
			pauseFor(context.Background(), time.Millisecond)
		}
	default:
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it comes
}

// userBeats deletes as a user does, and beats in the same transaction.
func userBeats(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o, err := user(ids)(ctx, tx)
		if err == nil {
			_, err = tx.Exec(ctx, beatNow)
		}
		return o, err
	}
}

// A transaction with deletes and a heartbeat has two records. Whatever dies between its effects, all of them are there once.
//
//lapse:long
func TestATransactionOfSeveralRecordsIsWholeWhereverTheAuditorDies(t *testing.T) {
	t.Parallel()
	for _, before := range []string{firstAck, nextEvent, firstRecord, secondRecord, confirmation} {
		t.Run("before "+before, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				r := newRig(t, db, kafkatest.Broker(t))
				want, w := newExpected(), &writer{conn: db.Connect(t)}
				r.db.Exec(t, beatNow)
				r.once(t)
				start := r.confirmed(t, w.conn)
				ids, err := w.rows(t.Context(), 4)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.commit(t.Context(), want, userBeats(ids)); err != nil {
					t.Fatal(err)
				}
				end := walEnd(t, w.conn)
				r.dies(t, before)
				if got := r.confirmed(t, w.conn); got >= end {
					t.Fatalf("the slot is confirmed up to %s, and the transaction ends at or below %s", got, end)
				} else if got < start {
					t.Fatalf("the slot went back from %s to %s", start, got)
				}
				r.left(t, before)
				r.once(t)
				r.verify(t, want)
				r.unbroken(t)
				r.db.Exec(t, beatNow) // names the one of the transaction
				r.once(t)
				r.verify(t, want)
				r.unbroken(t)
			})
		})
	}
}

// A heartbeat that shows two gaps has two records, and the first names it. A start must not take it for the log's last
// heartbeat while the second is missing: it would skip that record and believe that it knows the topic that the record
// names.
func TestBothGapsOfAHeartbeatAreInTheLogThoughTheAuditorDiesBetweenThem(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 5, user)
		r.once(t, r.beating(time.Minute))
		r.deleteTopic(t, r.settings.User)
		if err := r.broker.CreateTopic(t.Context(), r.settings.User, partitions, nil); err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, `alter publication lapse_ledger drop table lapse.heartbeat`, beatNow,
			`alter publication lapse_ledger add table lapse.heartbeat`, beatNow)
		r.dies(t, secondGap)
		log := r.readLog(t)
		if newest := log[len(log)-1]; newest.Kind != "gap" || !newest.more {
			t.Fatalf("the log ends with a record of kind %s (another to come: %v)", newest.Kind, newest.more)
		}
		for range 2 {
			r.once(t)
			r.twoGaps(t)
		}
	})
}

// A log that has its origin only, and a slot that was made again: the gap must come though the auditor dies after the route.
func TestAGapOfANewSlotComesThoughTheAuditorDiesBehindTheRoute(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.dies(t, theRoute)
		eventually(t, "the server has noticed the death, and the slot is dropped", func() bool {
			err := replication.DropSlot(t.Context(), w.conn, r.settings.Slot)
			if err != nil && !errors.Is(err, replication.ErrSlotActive) {
				t.Fatal(err)
			}
			return err == nil
		})
		r.commit(t, w, 3, user) // nobody reads these
		start, err := replication.CreateSlot(t.Context(), w.conn, r.settings.Slot)
		if err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, fmt.Sprintf(`update lapse.installation set slot_start = '%s', slot_made_at = clock_timestamp()`, start))
		r.dies(t, slotGap)
		for range 2 {
			r.once(t)
			if gaps := r.gaps(t); len(gaps) != 1 || gaps[0].Reason != "slot" || gaps[0].To.LSN != start.String() {
				t.Errorf("the slot begins at %s, the gaps are %+v", start, gaps)
			}
		}
	})
}

// twoGaps wants the two gaps of one heartbeat, once in the log and once in each partition.
func (r *rig) twoGaps(t *testing.T) {
	t.Helper()
	var inLog []string
	for _, record := range r.read(t, r.settings.Log) {
		if record.Header("lapse-op") == "gap" {
			inLog = append(inLog, fmt.Sprintf("%v %v", field(t, record.Value, "reason"), field(t, record.Value, "seq")))
		}
	}
	if want := []string{"publications 0", "topic 1"}; !slices.Equal(inLog, want) {
		t.Errorf("the log has the gaps %q, want %q", inLog, want)
	}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		got := map[string]int{}
		for _, record := range r.read(t, topic) {
			got[fmt.Sprint(record.Partition, " ", field(t, record.Value, "lapse", "reason"))]++
		}
		for p := range partitions {
			for _, reason := range []string{"publications", "topic"} {
				if n := got[fmt.Sprint(p, " ", reason)]; n != 1 {
					t.Errorf("%s/%d has %d gaps because of %s, want 1", topic, p, n, reason)
				}
			}
		}
	}
}

// dies runs an auditor in a process of its own that ends at a step.
func (r *rig) dies(t *testing.T, before string) {
	t.Helper()
	s := r.settings
	s.DieBefore = before
	child := startChild(t, s)
	select {
	case <-child.dead:
	case <-time.After(patience):
		t.Fatalf("the auditor does not come to %s", before)
	}
	status, ok := child.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the auditor ended by %v:\n%s", child.command.ProcessState, child.log.Bytes())
	}
}

// left checks what the crash left in the log, so that each step is the one that its name says.
func (r *rig) left(t *testing.T, before string) {
	t.Helper()
	log := r.readLog(t)
	newest, events := log[len(log)-1], len(r.read(t, r.settings.User))
	switch before {
	case nextEvent:
		if events == 0 || newest.Kind == "transaction" {
			t.Errorf("%d events are acknowledged, and the log ends with a record of kind %s", events, newest.Kind)
		}
	case firstRecord:
		if events != 12 || newest.Kind == "transaction" {
			t.Errorf("%d events are acknowledged, and the log ends with a record of kind %s", events, newest.Kind)
		}
	case secondRecord:
		if newest.Kind != "transaction" || !newest.more {
			t.Errorf("the log ends with a record of kind %s (another to come: %v)", newest.Kind, newest.more)
		}
	case confirmation:
		if newest.Kind != "coverage" || newest.position.Seq != 1 || newest.more {
			t.Errorf("the log ends with a record of kind %s at %s (another to come: %v)", newest.Kind, newest.position, newest.more)
		}
	}
}

// unbroken wants a log without gaps and rewinds.
func (r *rig) unbroken(t *testing.T) {
	t.Helper()
	for _, l := range r.readLog(t) {
		if l.Kind == "gap" || l.Kind == "rewind" {
			t.Errorf("the log has a %s at %s", l.Kind, l.position)
		}
	}
}
