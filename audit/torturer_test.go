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
	"golang.org/x/sync/errgroup"

	"lapse/audit/verify"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// torture kills, freezes and moves: auditors, brokers, PostgreSQL.
type torture struct {
	t        *testing.T
	rig      *rig
	cluster  *kafkaserver.Cluster
	want     *expected
	random   *rand.Rand
	auditors []*suspect // two: one has the slot, the other waits for it
	load     *load
	working  sync.WaitGroup
	finish   context.CancelFunc // of the load
	routed   bool               // each auditor has a drawn route

	began     time.Time
	nextFlood int64
	floods    int
	started   int            // auditors
	faults    map[string]int // by what was done
	zombies   map[string]int // by what became of them
}

// newTorture starts three brokers, two auditors at once after a bad network, and a load of every kind of transaction with
// a pause between two of them. routed: each auditor has another format, number of partitions and hash key than the one before.
func newTorture(t *testing.T, db *pgtest.DB, seed int64, gap time.Duration, routed bool) *torture {
	t.Helper()
	source := func(n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), uint64(10*db.Major+n))) }
	cluster := kafkatest.Cluster(t, 3)
	r := newRigAt(t, db, strings.Join(cluster.Addrs(), ","))
	r.broker = cluster.Brokers()[0]
	r.settings.BeatEvery = time.Second
	r.settings.MaxBuffered = 256 << 10 // so that large transactions are caught in the middle
	r.settings.Network = seed
	r.makeKept(t)
	if routed {
		r.once(t)
		r.addPartitions(t, 6)
	}

	want := newExpected()
	ctx, finish := context.WithCancel(t.Context())
	o := &torture{
		t: t, rig: r, cluster: cluster, want: want, random: source(2), load: &load{rig: r, want: want, random: source(1)},
		finish: finish, routed: routed, faults: map[string]int{}, zombies: map[string]int{}, nextFlood: 1 << 40, began: time.Now(),
	}
	o.working.Go(func() { o.load.runWith(ctx, gap) })
	o.auditors = []*suspect{o.newSuspect(), o.newSuspect()}
	return o
}

// end stops the load and compares what is in the topics with what was committed.
func (o *torture) end() {
	o.t.Helper()
	o.finish()
	o.working.Wait()
	if o.load.err != nil {
		o.t.Fatal(o.load.err)
	}
	for _, a := range o.auditors {
		a.kill(o.t)
	}
	o.rig.settings.MaxBuffered = 0
	o.rig.once(o.t, o.rig.beating(time.Second))
	if !o.routed {
		o.report(o.load.done, func(record kafkatest.Record) string { return string(record.Key) })
		o.rig.verify(o.t, o.want)
		return
	}
	o.rig.routes = len(o.rig.logRoutes(o.t))
	hashes := otherHashes(o.load.next)
	o.report(o.load.done, func(record kafkatest.Record) string { return textOfKey(record.Key, hashes) })
	o.t.Logf("%d routes", o.rig.routes)
	o.rig.verifyRouted(o.t, o.want, o.load.next)
}

// fault is one thing that is done to one of them.
type fault struct {
	name   string
	weight int
	do     func()
}

func (o *torture) all() []fault {
	return []fault{
		{"leader killed", 3, func() { o.killLeader(func() {}) }},
		{"leader frozen", 3, func() { o.freezeLeader(func() {}) }},
		{"leader moved", 4, o.moveLeader},
		{"most brokers killed", 1, o.killMost},
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
}

// round waits for a random moment and does one thing to one of them.
func (o *torture) round() {
	o.t.Helper()
	sum := 0
	for _, f := range o.all() {
		sum += f.weight
	}
	at := o.random.IntN(sum)
	for _, f := range o.all() {
		if at -= f.weight; at < 0 {
			o.do(f.name)
			break
		}
	}
}

// do waits for a random moment and does what has that name.
func (o *torture) do(name string) {
	o.t.Helper()
	o.pause(0, 2*time.Second)
	all := o.all()
	chosen := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	o.faults[name]++
	o.t.Logf("%5.1f s: %s", time.Since(o.began).Seconds(), name)
	all[chosen].do()
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

// somewhere is a partition of one of the topics.
func (o *torture) somewhere() (topic string, partition int) {
	s := &o.rig.settings
	topic, partition = []string{s.System, s.User, s.Log}[o.random.IntN(3)], o.random.IntN(partitions)
	if topic == s.Log {
		partition = 0
	}
	return topic, partition
}

// leader is the broker that leads a partition of one of the topics.
func (o *torture) leader() *kafkaserver.Server {
	topic, partition := o.somewhere()
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

// moveLeader moves a partition's leader while all brokers live, a few times in a row.
func (o *torture) moveLeader() {
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*patience)
	defer cancel()
	for range 3 {
		topic, partition := o.somewhere()
		o.must(o.cluster.MoveLeader(ctx, topic, partition))
		o.pause(0, 300*time.Millisecond)
	}
}

// killMost leaves one broker of three, which may acknowledge nothing by itself.
func (o *torture) killMost() {
	brokers := o.cluster.Brokers()
	first := o.random.IntN(len(brokers))
	dead := []*kafkaserver.Server{brokers[first], brokers[(first+1)%len(brokers)]}
	for _, broker := range dead {
		o.must(broker.Kill())
	}
	o.pause(time.Second, 5*time.Second)
	var starting errgroup.Group // one alone is not most of them, and would wait for the other
	for _, broker := range dead {
		starting.Go(func() error { return broker.Start(o.t.Context()) })
	}
	o.must(starting.Wait())
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

// report counts what is in the topics, where keyOf is a record's key as what was committed is called.
func (o *torture) report(transactions int, keyOf func(kafkatest.Record) string) {
	events, twice := 0, 0
	var order verify.Order
	seen := map[string]bool{}
	for _, topic := range []string{o.rig.settings.System, o.rig.settings.User} {
		for _, record := range o.rig.read(o.t, topic) {
			events++
			order.Event(topic, record.Partition, asRead(topic, record), record.Offset)
			if op := record.Header("lapse-op"); op == "truncate" || op == "drop" {
				continue
			}
			key := rowKey(record.Header("lapse-table"), keyOf(record))
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
	o.t.Logf("%d transactions, %d rows, %d truncates, %d drops committed; %d events: %d missing, %d twice, %d out of order",
		transactions+o.floods, len(o.want.causes), o.want.truncates, o.want.drops, events, missing, twice, order.Breaks())
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
