//go:build torture

package audit_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// walsenderTimeout is how long PostgreSQL keeps the slot for an auditor that stands still: 60 s by default.
const walsenderTimeout = 3 * time.Second

// TestNothingIsMissingOrTwiceUnderTorture is make torture. Three brokers, an auditor and a second one that waits for its
// slot; leaders of partitions, both auditors and PostgreSQL are killed with -9, or frozen for longer than their sessions
// last and let go on, at random moments of a load of every kind of transaction. Afterwards everything that was committed
// is in its topic once, in order, under its cause, and the log agrees.
//
// An auditor that was frozen until the other had taken over is a zombie: it has events that it has not sent. When it goes
// on it must not get one into a topic. One that is told so ("fenced") ends, and does not take slot and topics again.
//
// LAPSE_TORTURE is the minutes, LAPSE_TEST_SEED repeats a run's choices (not its timing), LAPSE_PG=14 leaves 18 out.
func TestNothingIsMissingOrTwiceUnderTorture(t *testing.T) {
	t.Parallel()
	settings := pgtest.Settings(map[string]string{"wal_sender_timeout": fmt.Sprint(walsenderTimeout.Milliseconds())})
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		minutes := time.Duration(number("LAPSE_TORTURE", 5)) * time.Minute
		t.Logf("SEED=%d, %s", seed, minutes)
		source := func(n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), uint64(10*db.Major+n))) }
		cluster := kafkatest.Cluster(t, 3)
		r := newRigAt(t, db, strings.Join(cluster.Addrs(), ","))
		r.broker = cluster.Brokers()[0]
		r.settings.BeatEvery = time.Second
		r.settings.MaxBuffered = 256 << 10 // so that large transactions are caught in the middle

		want := newExpected()
		ctx, finish := context.WithCancel(t.Context())
		load := &load{rig: r, want: want, random: source(1)}
		var working sync.WaitGroup
		// About as much in a long run as in a short one: what is to be compared in the end is in memory.
		working.Go(func() { load.runWith(ctx, 20*time.Millisecond*minutes/time.Minute) })
		torture := &torture{
			t: t, rig: r, cluster: cluster, want: want, random: source(2),
			faults: map[string]int{}, zombies: map[string]int{}, nextFlood: 1 << 40, began: time.Now(),
		}
		torture.auditors = []*suspect{torture.newSuspect(), torture.newSuspect()}
		for time.Since(torture.began) < minutes && !t.Failed() {
			torture.round()
		}
		finish()
		working.Wait()
		if load.err != nil {
			t.Fatal(load.err)
		}
		for _, a := range torture.auditors {
			a.kill(t)
		}
		r.settings.MaxBuffered = 0
		r.once(t, r.beating(time.Second))
		torture.report(load.done)
		r.verify(t, want)
	}, settings)
}

// torture kills and freezes.
type torture struct {
	t        *testing.T
	rig      *rig
	cluster  *kafkaserver.Cluster
	want     *expected
	random   *rand.Rand
	auditors []*suspect

	began     time.Time
	nextFlood int64
	floods    int
	started   int            // auditors
	faults    map[string]int // by what was done
	zombies   map[string]int // by what became of them
}

// round waits for a random moment and does one thing to one of them.
func (o *torture) round() {
	o.t.Helper()
	o.pause(0, 2*time.Second)
	faults := []struct {
		name   string
		weight int
		do     func()
	}{
		{"leader killed", 3, func() { o.killLeader(func() {}) }},
		{"leader frozen", 3, func() { o.freezeLeader(func() {}) }},
		{"auditor killed", 2, func() { o.replace(o.active()) }},
		{"auditor killed while a leader is dead", 1, func() { o.killLeader(func() { o.replace(o.active()) }) }},
		{"auditor killed while a leader is frozen", 1, func() { o.freezeLeader(func() { o.replace(o.active()) }) }},
		{"auditor frozen", 3, func() { o.zombie(func(do func()) { do() }) }},
		{"auditor frozen while a leader is", 2, func() { o.zombie(o.freezeLeader) }},
		{"PostgreSQL killed", 2, o.killPostgres},
		{"PostgreSQL frozen", 2, o.freezePostgres},
		{"standby auditor killed", 1, func() { o.replace(o.waiting()) }},
		{"standby auditor frozen", 1, func() { o.nap(o.waiting()) }},
	}
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	at := o.random.IntN(sum)
	for _, f := range faults {
		if at -= f.weight; at < 0 {
			o.faults[f.name]++
			o.t.Logf("%5.1f s: %s", time.Since(o.began).Seconds(), f.name)
			f.do()
			break
		}
	}
	for i, a := range o.auditors {
		if a.ended() {
			if !a.fenced() {
				o.t.Fatalf("auditor %d gave up, and nobody had fenced it:\n%s", a.number, a.log.tail())
			}
			o.zombies[fencedEnds]++
			o.auditors[i] = o.newSuspect()
		}
	}
}

func (o *torture) pause(least, most time.Duration) {
	pauseFor(o.t.Context(), least+time.Duration(o.random.Int64N(int64(most-least))))
}

func (o *torture) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// leader is the broker that leads a partition of one of the topics.
func (o *torture) leader() *kafkaserver.Server {
	s := &o.rig.settings
	topic, partition := []string{s.System, s.User, s.Log}[o.random.IntN(3)], o.random.IntN(partitions)
	if topic == s.Log {
		partition = 0
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	leader, err := o.cluster.Leader(ctx, topic, partition)
	o.must(err)
	return leader
}

func (o *torture) killLeader(meanwhile func()) {
	leader := o.leader()
	o.must(leader.Kill())
	o.pause(0, 4*time.Second)
	meanwhile()
	o.must(leader.Start(o.t.Context()))
}

// freezeLeader holds a broker for longer than its session with the controller lasts (2 s), mostly.
func (o *torture) freezeLeader(meanwhile func()) {
	leader := o.leader()
	o.must(leader.Freeze())
	defer func() { o.must(leader.Thaw()) }()
	meanwhile()
	o.pause(time.Second, 8*time.Second)
}

func (o *torture) killPostgres() {
	o.must(o.rig.db.Server.Kill())
	o.pause(0, 2*time.Second)
	o.must(o.rig.db.Server.Start(o.t.Context()))
}

func (o *torture) freezePostgres() {
	o.must(o.rig.db.Server.Freeze())
	o.pause(time.Second, 8*time.Second)
	o.must(o.rig.db.Server.Thaw())
}

func (o *torture) nap(a *suspect) {
	a.freeze(o.t)
	o.pause(time.Second, 8*time.Second)
	a.thaw(o.t)
}

// replace kills an auditor and starts another.
func (o *torture) replace(a *suspect) {
	a.kill(o.t)
	o.auditors[slices.Index(o.auditors, a)] = o.newSuspect()
}

// zombie freezes the auditor in the middle of a large transaction, within what else goes on, until the other has taken
// over, and lets it go on.
func (o *torture) zombie(within func(func())) {
	zombie := o.active()
	other := o.auditors[1-slices.Index(o.auditors, zombie)]
	before := other.log.count(streaming)
	within(func() {
		o.flood()
		o.pause(0, 60*time.Millisecond)
		zombie.freeze(o.t)
	})
	o.await("the other auditor takes over", func() bool { return other.ended() || other.log.count(streaming) > before })
	o.pause(0, 2*time.Second)
	zombie.thaw(o.t)
	o.zombies[resumed]++
	o.judge(zombie)
}

// What becomes of a zombie. The last two must not.
const (
	resumed    = "resumed"
	idle       = "had nothing to send"
	caught     = "caught sending into a fenced partition"
	fencedEnds = "fenced, ended"
	goesOn     = "fenced, did not end"
	fencedBack = "fenced, took the slot again"
)

// judge waits for what a resumed zombie does. One that had nothing to send waits for the slot again, as it should.
func (o *torture) judge(zombie *suspect) {
	if !within(8*time.Second, func() bool { return zombie.ended() || zombie.fenced() }) {
		o.zombies[idle]++
		return
	}
	o.zombies[caught]++
	if within(10*time.Second, zombie.ended) {
		return
	}
	if o.zombies[goesOn]++; o.zombies[goesOn] == 1 {
		o.t.Logf("auditor %d was fenced and goes on:\n%s", zombie.number, zombie.log.tail())
	}
	// Left alone with the slot, does it take it?
	other := o.auditors[1-slices.Index(o.auditors, zombie)]
	other.kill(o.t)
	if within(15*time.Second, func() bool { return zombie.log.after(fencedWords, streaming) }) {
		o.zombies[fencedBack]++
	}
	o.replace(zombie)
	o.replace(other)
}

// flood commits a large transaction, and returns when it is committed.
func (o *torture) flood() {
	ctx := o.t.Context()
	conn, err := pgx.Connect(ctx, o.rig.settings.URL)
	o.must(err)
	defer func() { _ = conn.Close(ctx) }()
	w := &writer{conn: conn, next: o.nextFlood}
	ids, err := w.rows(ctx, 4000)
	o.must(err)
	kind := user(ids)
	if o.random.IntN(2) == 0 {
		kind = batch(ids, nil)
	}
	o.must(w.commit(ctx, o.want, kind))
	o.nextFlood = w.next
	o.floods++
}

// active is the auditor that has the slot.
func (o *torture) active() (found *suspect) {
	o.t.Helper()
	o.await("an auditor has the slot", func() bool {
		name := o.holder()
		for _, a := range o.auditors {
			if a.name() == name && !a.ended() {
				found = a
			}
		}
		return found != nil
	})
	return found
}

func (o *torture) waiting() *suspect { return o.auditors[1-slices.Index(o.auditors, o.active())] }

// holder is the name of the session that has the slot.
func (o *torture) holder() (name string) {
	ctx, cancel := context.WithTimeout(o.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, o.rig.settings.URL)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(ctx) }()
	_ = conn.QueryRow(ctx, `
		select application_name from pg_stat_activity join pg_replication_slots on pid = active_pid where slot_name = $1`,
		o.rig.settings.Slot).Scan(&name)
	return name
}

// within waits for a condition, and says whether it came.
func within(patience time.Duration, holds func() bool) bool {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(patience); !holds(); {
		select {
		case <-poll.C:
		case <-late:
			return false
		}
	}
	return true
}

// await is eventually with time for an auditor that looks twice before it takes over.
func (o *torture) await(what string, holds func() bool) {
	o.t.Helper()
	if !within(3*time.Minute, holds) {
		o.t.Fatalf("in vain: %s", what)
	}
}

// report counts what is in the topics.
func (o *torture) report(transactions int) {
	events, twice, disordered := 0, 0, 0
	seen := map[string]bool{}
	for _, topic := range []string{o.rig.settings.System, o.rig.settings.User} {
		last := map[int32]string{}
		for _, record := range o.rig.read(o.t, topic) {
			events++
			place := fmt.Sprintf("%010s/%010s/%s/%s", record.Header("lapse-history"), record.Header("lapse-tli"),
				record.Header("lapse-lsn"), record.Header("lapse-seq"))
			if place <= last[record.Partition] {
				disordered++
			}
			last[record.Partition] = place
			if record.Header("lapse-op") == "truncate" {
				continue
			}
			key := rowKey(record.Header("lapse-table"), string(record.Key))
			if seen[key] {
				twice++
			}
			seen[key] = true
		}
	}
	missing := 0
	for key := range o.want.causes {
		if !seen[key] {
			missing++
		}
	}
	faults := 0
	for _, n := range o.faults {
		faults += n
	}
	o.t.Logf("%d transactions, %d rows, %d truncates committed; %d events: %d missing, %d twice, %d out of order",
		transactions+o.floods, len(o.want.causes), o.want.truncates, events, missing, twice, disordered)
	o.t.Logf("%d faults: %s", faults, counts(o.faults))
	o.t.Logf("zombies: %s; %d auditors started", counts(o.zombies), o.started)
	if o.zombies[goesOn]+o.zombies[fencedBack] > 0 {
		o.t.Error("an auditor that was fenced must end, and must not take the slot again")
	}
}

func counts(m map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(parts, ", ")
}
