package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit"
	"lapse/audit/kafka"
	"lapse/internal/evidencetest"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

// patience is how long a test waits for something that must happen.
const patience = fixture.Patience

const partitions = 3

// rig is a database with a slot, topics of its own, and what is known of what must be in them.
type rig struct {
	db       *pgtest.DB
	broker   *kafkaserver.Server
	settings settings
	measured *audit.Metrics // by looking
	routes   int            // that the log must have; 0 is one
}

// settings are what an auditor needs to know; a child process gets them as JSON.
type settings struct {
	URL, Slot, Broker string
	Folder            string // keeps the topics instead of the broker; empty for none
	System, User, Log string
	Proofs            string
	SlotStart         schemas.LSN
	MaxBuffered       int
	Compression       kafka.Compression
	BeatEvery         time.Duration // of a child process; 0 for no heartbeats
	Network           int64         // the seed of a bad network between a child process and the brokers; 0 for a good one
	DieBefore         string        // a step of a child process, see dying; empty for none
	CopyTo            string        // the file of a child process that copies the events; empty for none
	DieAtEvent        int           // of that child; 0 for none
	Chosen            chosen
}

// chosen is what a person may change while a log goes on: its zero value is spanner, partitions and evidencetest.HashKey.
type chosen struct {
	Format     string
	Partitions int
	OtherKey   bool // otherHashKey
	NextLogKey bool // nextLogKey
}

var otherHashKey = schemas.Key(bytes.Repeat([]byte{8}, schemas.MinKey))

func (c chosen) apply(config *audit.Config) {
	config.Format, config.Partitions = c.Format, cmp.Or(c.Partitions, partitions)
	config.HashKey, config.FormerHashKeys = evidencetest.HashKey, []schemas.Key{otherHashKey}
	if c.NextLogKey {
		rotatedKey(config)
	}
	if c.OtherKey {
		config.HashKey, config.FormerHashKeys = otherHashKey, []schemas.Key{evidencetest.HashKey}
	}
}

// newRig makes the slot. The topics are made by the first auditor.
func newRig(t *testing.T, db *pgtest.DB, broker *kafkaserver.Server) *rig {
	t.Helper()
	r := newRigAt(t, db, broker.Addr())
	r.broker = broker
	return r
}

// newRigAt is newRig for a broker that is not a kafkaserver.
func newRigAt(t *testing.T, db *pgtest.DB, addr string) *rig {
	t.Helper()
	name := kafkatest.Name()
	r := &rig{db: db, settings: settings{
		URL: db.URL, Slot: db.Name, Broker: addr,
		System: name + ".system", User: name + ".user", Log: name + ".log",
		Proofs: name + ".proofs",
	}}
	if os.Getenv(testSink) == "dir" {
		r.settings.Folder = newFolder(t)
	}
	conn := db.Connect(t)
	var err error
	if r.settings.SlotStart, err = replication.CreateSlot(t.Context(), conn, db.Name); err != nil {
		t.Fatal(err)
	}
	r.recordSlot(t, r.settings.SlotStart)
	return r
}

// recordSlot writes down where the slot begins, as init does.
func (r *rig) recordSlot(t *testing.T, start schemas.LSN) {
	t.Helper()
	r.db.Exec(t, fmt.Sprintf(`update lapse.installation set slot_start = nullif('%s', '0/0')::pg_lsn, slot_made_at = now()`, start))
}

// onEach runs a test on the oldest and the newest PostgreSQL, with the shared servers.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) { test(t, newRig(t, db, kafkatest.Broker(t))) })
}

// onHeavy is onEach for what costs much and is about topics, brokers or the auditor rather than the server: see pgtest.Heavy.
func onHeavy(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { test(t, newRig(t, db, kafkatest.Broker(t))) })
}

func (s settings) config() audit.Config {
	config := audit.Config{
		Stream: replication.StreamConfig{ConnString: s.URL, Slot: s.Slot},
		Kafka:  kafka.Config{Brokers: strings.Split(s.Broker, ","), MaxBuffered: s.MaxBuffered, Compression: s.Compression},
		Folder: s.Folder, System: s.System, User: s.User, Log: s.Log, Create: true,
		Keys: []schemas.Key{evidencetest.TagKey}, LogKey: evidencetest.LogKey,
		Proofs: s.Proofs, RowsKeys: evidencetest.RowsKeys(time.Now()),
	}
	s.Chosen.apply(&config)
	return config
}

// auditor makes an auditor whose log is shown if the test fails.
func (r *rig) auditor(t *testing.T, change ...func(*audit.Config)) *audit.Auditor {
	t.Helper()
	config := r.settings.config()
	config.Logger = slog.New(slog.NewTextHandler(&testLog{t: t}, nil))
	for _, f := range change {
		f(&config)
	}
	a, err := audit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// testLog keeps what is logged, and shows it if the test fails.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	kept bytes.Buffer
	once sync.Once
}

// String is what was logged so far.
func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

func (l *testLog) Write(p []byte) (int, error) {
	l.once.Do(func() {
		l.t.Cleanup(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.t.Failed() {
				l.t.Logf("the auditor's log:\n%s", l.kept.Bytes())
			}
		})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

// running is an auditor at work.
type running struct {
	*audit.Auditor
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// start runs an auditor until stop, or the end of the test.
func (r *rig) start(t *testing.T, change ...func(*audit.Config)) *running {
	t.Helper()
	return r.startWith(t, r.auditor(t, change...))
}

// startWith is start with an auditor that has been made.
func (r *rig) startWith(t *testing.T, a *audit.Auditor) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	run := &running{Auditor: a, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = run.Run(ctx)
	}()
	t.Cleanup(func() { run.end(t) })
	return run
}

// end stops the auditor and wants it to have had no error.
func (run *running) end(t *testing.T) {
	t.Helper()
	run.stop()
	select {
	case <-run.done:
	case <-time.After(patience):
		t.Fatal("the auditor does not stop")
	}
	if run.err != nil {
		t.Errorf("the auditor stopped: %v", run.err)
	}
}

// once runs an auditor up to the current end of the WAL.
func (r *rig) once(t *testing.T, change ...func(*audit.Config)) {
	t.Helper()
	if err := r.tryOnce(t, change...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) tryOnce(t *testing.T, change ...func(*audit.Config)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // there may be much to catch up with
	defer cancel()
	until := func(c *audit.Config) {
		c.OnEnd(func(ctx context.Context) (lsn schemas.LSN, err error) {
			conn, err := pgx.Connect(ctx, r.settings.URL)
			if err != nil {
				return 0, err
			}
			defer func() { _ = conn.Close(ctx) }()
			err = conn.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&lsn)
			return lsn, err
		})
	}
	if err := r.auditor(t, append(change, until)...).Run(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

var eventually = fixture.Eventually

// confirmed is the slot's position.
func (r *rig) confirmed(t *testing.T, conn *pgx.Conn) schemas.LSN {
	t.Helper()
	return fixture.One[schemas.LSN](t, conn, `select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1`, r.settings.Slot)
}

// walEnd is the server's end of the WAL.
func walEnd(t *testing.T, conn *pgx.Conn) schemas.LSN {
	t.Helper()
	return fixture.One[schemas.LSN](t, conn, `select pg_current_wal_flush_lsn()::text`)
}

// catchUp waits until everything that has been committed is confirmed. It writes a heartbeat, since other tests write
// into the same WAL, and what is not published is confirmed each minute only.
func (r *rig) catchUp(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	end := walEnd(t, conn)
	r.db.Exec(t, beatNow)
	eventually(t, "the slot is confirmed", func() bool { return r.confirmed(t, conn) >= end })
}

// beatNow is a beat as the auditor's login makes it.
const beatNow = `select lapse.beat(gen_random_uuid(), (select max(number) from lapse.history), lapse.timeline(), pg_postmaster_start_time(), null)`

// beating lets the auditor write heartbeats, as often as every says.
func (r *rig) beating(every time.Duration) func(*audit.Config) {
	return func(c *audit.Config) { r.settings.beat(c, every) }
}

// beat lets an auditor write heartbeats, over a connection each.
func (s settings) beat(c *audit.Config, every time.Duration) {
	c.HeartbeatEvery = every
	c.OnBeat(func(ctx context.Context, nonce uuid.UUID, place audit.Server) error {
		conn, err := pgx.Connect(ctx, s.URL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		_, err = conn.Exec(ctx, `select lapse.beat($1, $2, $3, $4, null)`, nonce, int32(place.History), int32(place.Timeline), place.ServerStart)
		return err
	})
}

// childSettings makes the test binary an auditor process.
const childSettings = "LAPSE_TEST_AUDITOR"

// badFates are those that cost moments, not the ten seconds after which an answer is given up.
var badFates = []kafkatest.Fate{
	kafkatest.Lose, kafkatest.Cut, kafkatest.Slow, kafkatest.LoseAnswer, kafkatest.CutAnswer, kafkatest.SlowAnswer, kafkatest.Twice,
}

// runChild is the process. It audits until it is killed.
func runChild(text string) int {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := s.config()
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if s.Network != 0 {
		config.Kafka.Dial = kafkatest.NewBadNetwork(s.Network, badFates...).Dial
	}
	if s.BeatEvery > 0 {
		s.beat(&config, s.BeatEvery)
	}
	a, err := audit.New(config)
	if err == nil {
		if s.DieBefore != "" || s.DieAtEvent > 0 {
			a.AtSteps((&dying{before: s.DieBefore, atEvent: s.DieAtEvent}).at)
		}
		if s.CopyTo == "" {
			err = a.Run(context.Background())
		} else {
			err = copyForEver(a, s.CopyTo)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// copyForEver copies the events into a file until it is killed.
func copyForEver(a *audit.Auditor, path string) error {
	file, err := audit.OpenEventFile(path)
	if err == nil {
		_, err = a.Copy(context.Background(), file)
	}
	return err
}

// gather returns all counters and gauges, by name and labels.
func gather(t *testing.T, m *audit.Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			values[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return values
}
