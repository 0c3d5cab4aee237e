package audit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/replication"
	"lapse/schemas"
)

// named makes a table whose keys are hashed: they are longer than events tell.
func (r *rig) named(t *testing.T) {
	t.Helper()
	r.db.Exec(t, `create table named (id text primary key)`)
	if err := publish(t.Context(), r.db.Connect(t), replication.Join, "named"); err != nil {
		t.Fatal(err)
	}
}

// withNamed is a transaction that deletes a row of the table named too.
func withNamed(do transaction) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		_, err := tx.Exec(ctx, `insert into named values (gen_random_uuid() || repeat(chr(1), 150000))`)
		if err == nil {
			_, err = tx.Exec(ctx, `delete from named`)
		}
		if err != nil {
			return outcome{}, err
		}
		return do(ctx, tx)
	}
}

// addPartitions gives the topics of events more partitions.
func (r *rig) addPartitions(t *testing.T, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(r.settings.Broker, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	for _, topic := range []string{r.settings.System, r.settings.User} {
		more := kmsg.NewCreatePartitionsRequestTopic()
		more.Topic, more.Count = topic, int32(n)
		req.Topics = append(req.Topics, more)
	}
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range resp.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

// half is a transaction between these positions that has some of its events in the topics.
type half struct{ above, upTo schemas.LSN }

// halfDone commits a transaction, and leaves half of its events in the topics: the auditor is killed in the middle of it.
// Another one is committed after it.
func (r *rig) halfDone(t *testing.T, want *expected, w *writer) (h half) {
	t.Helper()
	commit := func() {
		ids, err := w.rows(t.Context(), 4)
		if err == nil {
			err = w.commit(t.Context(), want, withNamed(user(ids)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.above = walEnd(t, w.conn)
	commit()
	h.upTo = walEnd(t, w.conn)
	r.dies(t, nextEvent)
	commit()
	return h
}

// follows wants the log's last route to have a version, and to come after a transaction that was half in the topics.
func (r *rig) follows(t *testing.T, h half, version int) {
	t.Helper()
	routes := r.logRoutes(t)
	last := routes[len(routes)-1]
	if last.Version != version || last.reach.LSN <= h.above || last.reach.LSN > h.upTo {
		t.Fatalf("route %d is at %s, want %d at the end of the transaction in %+v", last.Version, last.reach, version, h)
	}
}

// The auditor is killed in the middle of a transaction, and the next one is told another format, more partitions, another hash
// key, fewer partitions, and what there was before. The transaction is finished as it was begun, and what comes after is by
// the other route.
func TestATransactionIsFinishedByTheRouteThatItWasBegunBy(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.named(t)
		copied := r.copySlot(t)
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 5)
		r.once(t)
		r.addPartitions(t, 5)
		for i, next := range []chosen{
			{Format: evidence.FormatDebezium},
			{Format: evidence.FormatDebezium, Partitions: 5},
			{Format: evidence.FormatDebezium, Partitions: 5, OtherKey: true},
			{},
			{Format: evidence.FormatCloudEvents, Partitions: 4, OtherKey: true},
		} {
			done := r.halfDone(t, want, w)
			r.settings.Chosen = next
			r.once(t)
			r.follows(t, done, i+2)
			if err := w.commit(t.Context(), want, emptier); err != nil {
				t.Fatal(err)
			}
			r.once(t)
			r.routes = i + 2
			r.verifyRouted(t, want, 0)
		}
		r.isAsReread(t, copied)
	})
}

// Nothing is half in the topics: what comes next is by the other route. The slot then is where it was in the beginning, as
// after a crash of the server, and nobody routes what it sends again, whatever is asked for.
func TestWhatTheSlotSendsAgainIsNotRoutedAgain(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.named(t)
		first, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 5)
		r.once(t)
		for i, next := range []chosen{{Format: evidence.FormatDebezium, OtherKey: true}, {Format: evidence.FormatCloudEvents}, {}} {
			r.settings.Chosen = next
			if i == 1 {
				r.settings.Chosen = chosen{}
				r.routes = 2
				r.halfDone(t, want, w) // by the route that is asked for in between
				r.settings.Chosen = next
			}
			r.moveBack(t, first)
			r.once(t)
			r.delete(t, want, w, 2)
			r.once(t)
		}
		r.routes = len(r.logRoutes(t))
		if r.routes != 5 {
			t.Errorf("%d routes", r.routes)
		}
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, first)
	})
}

// The auditor dies between two records of a transaction, before the record of a route is in the log, and after that. The next one is
// told another route again.
func TestARouteFollowsWhereverTheAuditorDies(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		copied, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		r.db.Exec(t, beatNow)
		r.once(t)
		ids, err := w.rows(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		h := half{above: walEnd(t, w.conn)}
		if err := w.commit(t.Context(), want, userBeats(ids)); err != nil {
			t.Fatal(err)
		}
		h.upTo = walEnd(t, w.conn)
		r.dies(t, secondRecord)
		r.delete(t, want, w, 1)
		r.settings.Chosen = chosen{Format: evidence.FormatDebezium, Partitions: 2}
		r.once(t)
		r.follows(t, h, 2)
		for i, c := range []struct {
			before string
			routes int
			next   chosen
		}{
			{theRoute, 2, chosen{Format: evidence.FormatCloudEvents}},
			{afterRoute, 4, chosen{Partitions: 1, OtherKey: true}},
		} {
			r.delete(t, want, w, 3)
			r.settings.Chosen = chosen{Partitions: 3 - i}
			r.dies(t, c.before)
			if n := len(r.logRoutes(t)); n != c.routes {
				t.Errorf("before %s there are %d routes, want %d", c.before, n, c.routes)
			}
			r.settings.Chosen = c.next
			r.once(t)
			r.delete(t, want, w, 3)
			r.once(t)
		}
		r.routes = 5
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, copied)
	})
}

// Of a former hash key nothing is needed but to finish what was begun under it.
func TestTheFormerHashKeyIsWantedOnlyWhereSomethingIsHalfInTheTopics(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.named(t)
		copied, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		lost := func(c *audit.Config) { c.FormerHashKeys = nil }
		r.delete(t, want, w, 3)
		r.once(t)
		r.settings.Chosen.OtherKey = true
		r.once(t, lost)
		done := r.halfDone(t, want, w)
		r.settings.Chosen.OtherKey = false
		r.refused(t, history.ErrHashKeyMissing, lost)
		if err := r.tryOnce(t, lost); err == nil || !strings.Contains(err.Error(), otherHashKey.Fingerprint()) {
			t.Errorf("the key is not named: %v", err)
		}
		r.once(t)
		r.follows(t, done, 3)
		r.routes = 3
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, copied)
	})
}

// More partitions than the topic has are refused. Those that somebody has added are used when the configuration says so. What
// concerns no single row goes into all that were ever used.
func TestPartitionsAreUsedFromTheRouteOnThatHasThem(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		copied, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 20)
		r.once(t)
		before := r.confirmed(t, w.conn)
		r.settings.Chosen.Partitions = 6
		err := r.tryOnce(t)
		if err == nil || !strings.Contains(err.Error(), "--alter --topic "+r.settings.System+" --partitions 6") {
			t.Errorf("with too few partitions: %v", err)
		}
		if at := r.confirmed(t, w.conn); at != before {
			t.Errorf("the slot has moved from %s to %s", before, at)
		}
		r.addPartitions(t, 6)
		r.delete(t, want, w, 20)
		r.once(t)
		if used := r.usedPartitions(t); len(used) != 6 {
			t.Errorf("events are in the partitions %v", used)
		}
		r.settings.Chosen.Partitions = 2
		behind := walEnd(t, w.conn)
		r.delete(t, want, w, 20)
		r.once(t)
		for place, op := range r.placesAbove(t, behind) {
			if !slices.Contains([]string{"/0", "/1"}, place[len(place)-2:]) {
				t.Errorf("a %s is in %s", op, place)
			}
		}
		behind = walEnd(t, w.conn)
		if err := w.commit(t.Context(), want, emptier); err != nil {
			t.Fatal(err)
		}
		r.once(t)
		if places := r.placesAbove(t, behind); len(places) != 6 {
			t.Errorf("a truncate is in %v", places)
		}
		r.routes = 3
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, copied)
	})
}

// usedPartitions are those of the user topic that have events.
func (r *rig) usedPartitions(t *testing.T) (used []int32) {
	t.Helper()
	for _, record := range r.read(t, r.settings.User) {
		if !slices.Contains(used, record.Partition) {
			used = append(used, record.Partition)
		}
	}
	return used
}

// placesAbove is what is in each partition above a position.
func (r *rig) placesAbove(t *testing.T, above schemas.LSN) map[string]string {
	t.Helper()
	places := map[string]string{}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		for _, record := range r.read(t, topic) {
			if record.Header("lapse-lsn") > fmt.Sprintf("%016X", uint64(above)) {
				places[fmt.Sprintf("%s/%d", topic, record.Partition)] = record.Header("lapse-op")
			}
		}
	}
	return places
}

// Two auditors that want different routes are started at once. One has the slot, and the other waits. Whichever dies, the other goes
// on, by its own route from where it is. One that was frozen in the middle of a transaction, and goes on when the other has taken
// over, gets nothing into the topics.
func TestAuditorsWithDifferentRoutesTakeOverFromOneAnother(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.named(t)
		copied, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 3)
		r.once(t)
		r.addPartitions(t, 5)
		var pair [2]settings
		var children [2]*process
		for i, c := range []chosen{{Format: evidence.FormatCloudEvents, Partitions: 5}, {Format: evidence.FormatDebezium, Partitions: 2, OtherKey: true}} {
			pair[i] = r.settings
			pair[i].Chosen, pair[i].MaxBuffered = c, 8<<10
			pair[i].URL += fmt.Sprintf("&application_name=auditor-%d", i)
			children[i] = startChild(t, pair[i])
		}
		for round := range 2 {
			active := r.active(t, w.conn)
			events := r.count(t, r.settings.User, "delete")
			r.delete(t, want, w, 300) // more than an auditor buffers
			r.delete(t, want, w, 2)
			eventually(t, "some of the events are there", func() bool { return r.count(t, r.settings.User, "delete") > events })
			if round == 0 {
				children[active].kill()
				r.catchUp(t, w.conn)
			} else {
				r.freezes(t, children[active], w.conn)
			}
			children[active].kill()
			children[active] = startChild(t, pair[active])
		}
		for _, child := range children {
			child.kill()
		}
		r.once(t)
		if r.routes = len(r.logRoutes(t)); r.routes < 4 {
			t.Errorf("%d routes, want one at the beginning, one of the first auditor, and one for each that takes over", r.routes)
		}
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, copied)
	})
}

// freezes freezes the auditor that has the slot until another has taken over, and lets it go on for a while.
func (r *rig) freezes(t *testing.T, child *process, conn *pgx.Conn) {
	t.Helper()
	if err := child.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.cutStream(t)
	r.catchUp(t, conn)
	if err := child.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	within(2*time.Second, func() bool {
		select {
		case <-child.dead:
			return true
		default:
			return false
		}
	})
}

// active is the number of the auditor that has the slot, as its session's name says.
func (r *rig) active(t *testing.T, conn *pgx.Conn) (number int) {
	t.Helper()
	eventually(t, "an auditor has the slot", func() bool {
		err := conn.QueryRow(t.Context(), `
			select right(application_name, 1)::int from pg_stat_activity join pg_replication_slots on pid = active_pid
			 where slot_name = $1 and application_name like 'auditor-%'`, r.settings.Slot).Scan(&number)
		return err == nil
	})
	return number
}
