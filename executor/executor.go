package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// Config configures an executor.
type Config struct {
	// Database is where to connect, as the login of the executor's role.
	Database *pgx.ConnConfig
	// Roles are those of the installation. Default: those with the default prefix.
	Roles schemas.Roles
	// TagKey signs claims. The auditor has the same key.
	TagKey schemas.Key
	// Holder names the process to a person who reads lapse.shard; it is made unique. Default: the host's name.
	Holder string
	Limits Limits
	// AuditorAwaits, if set, says what the auditor of this process waits for; "" once it has compared the log with the database, or has
	// found another auditor at work. Until then nothing is deleted, unless audit is off. Safe for concurrent use.
	AuditorAwaits func() string
	// State is where the executor keeps beats of a database without an audit. Nil: nowhere, so a restored copy is not noticed.
	State *state.Folder
	// LedgerDays is how many days the database keeps ledger rows and runs. Default 30.
	LedgerDays int
	// Logger gets what happens to policies and runs. Never a row's keys or values. Default: nothing is logged.
	Logger *slog.Logger
	// Progress, if set, is called by one worker at a time after every batch, and when the policy's rate holds a batch back. It must not
	// block. If it is nil, the progress of a long run is logged.
	Progress func(Progress)
	// Clock is the executor's own clock. Default: time.Now.
	Clock func() time.Time
}

// Limits bound one policy's turn, for all its workers together. Zero fields have defaults.
type Limits struct {
	// TurnRows ends a policy's turn. Default a million: twenty batches of the largest size.
	TurnRows int64
	// RowsPerPass is how many rows all policies of this process may delete in one pass: see quota. Default: no bound.
	RowsPerPass int64
	// TurnTime ends a policy's turn. Default 5 s: with ten policies at work each waits less than a minute.
	TurnTime time.Duration
	// Workers is how many shards this process works on at once, each over two connections of its own. Default 2: while one worker waits
	// for its batch's answer, the other works on the next policy.
	Workers int
	// BatchTime is the time that a batch should take, at gentle pace with its pauses. Default 200 ms: a session that wants one of the batch's rows
	// waits about that long.
	BatchTime time.Duration
	// Guards are the limits beyond which guards slow batches down or stop them.
	Guards guard.Limits
	// answerTime is how long a session waits for the server's answer; 0: batch's default.
	answerTime time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		RowsPerPass: l.RowsPerPass, TurnRows: cmp.Or(l.TurnRows, 1_000_000), TurnTime: cmp.Or(l.TurnTime, 5*time.Second),
		Workers: cmp.Or(l.Workers, 2), BatchTime: cmp.Or(l.BatchTime, 200*time.Millisecond),
		Guards: l.Guards, answerTime: l.answerTime,
	}
}

// stopTime is how long an open batch may take to finish after the executor is asked to stop. Then it is rolled back. The whole stop
// takes at most ten seconds.
const stopTime = 7 * time.Second

// ErrStopping says that the executor was asked to stop before it was done.
var ErrStopping = errors.New("the executor is stopping")

// Executor deletes what is due. Make one with New; call either Run or Once, one at a time. Ready, Status and Metrics are
// safe for concurrent use.
type Executor struct {
	config   Config
	holder   string
	log      *slog.Logger
	now      func() time.Time
	metrics  *Metrics
	guards   *guards
	reports  reports
	pace     *pace
	pass     *quota
	catalog  *batch.Catalog
	versions record.Versions
	// readBacklog is survey.ReadBacklog; tests replace it.
	readBacklog func(context.Context, *pgx.Conn, *record.InForce, time.Time, *survey.Judgement) (survey.Backlog, error)

	progress sync.Mutex // one call of Config.Progress at a time

	opened *batch.Session // that the first worker to connect takes; nil: it has

	seeding sync.Mutex
	seeded  bool // the counters began with the totals on record

	mu    sync.Mutex
	known map[versionKey]*policyMemory
	// pruneAt is when prune runs next.
	pruneAt time.Time
	ready   error
	paused  string // why a person paused every deletion: see Paused
	status  []policyStatus
	totals  map[schemas.PolicyName]*PolicySummary // of all its runs
}

// New checks the configuration. It does not connect.
func New(c Config) (*Executor, error) {
	if err := c.TagKey.Check(); err != nil {
		return nil, fmt.Errorf("tag %w", err)
	}
	if c.Database == nil {
		return nil, errors.New("the executor needs a database: database: in lapse.yaml or LAPSE_DATABASE_URL")
	}
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this executor: %w", err)
		}
		c.Holder = host
	}
	if c.Roles == (schemas.Roles{}) {
		c.Roles = schemas.RolesFor(schemas.DefaultRolePrefix)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Limits, c.LedgerDays = c.Limits.withDefaults(), cmp.Or(c.LedgerDays, 30)
	e := &Executor{
		config: c, holder: c.Holder + "/" + uuid.NewString(), log: c.Logger, now: c.Clock, metrics: newMetrics(), pace: newPace(), pass: &quota{most: c.Limits.RowsPerPass}, readBacklog: survey.ReadBacklog,
		catalog: batch.NewCatalog(c.Roles), known: map[versionKey]*policyMemory{}, totals: map[schemas.PolicyName]*PolicySummary{}, ready: errors.New("the executor has not begun"),
	}
	e.guards = newGuards(guard.All(c.Limits.Guards, c.AuditorAwaits), c.State, e.log, e.metrics)
	return e, nil
}

// Open opens the session of the first worker to connect. The caller may check over its connection, before Run or Once and not later, that the
// database is the one to delete from. If it is not, the caller closes the connection.
func (e *Executor) Open(ctx context.Context) (*pgx.Conn, error) {
	e.opened.Close()
	go e.catalog.Prepare() // while the server answers
	s, err := batch.Open(ctx, e.config.Database, e.config.Limits.BatchTime, e.config.Limits.answerTime)
	e.opened = s
	if err != nil {
		return nil, err
	}
	return s.Control, nil
}

// takeOpened returns the session of Open, nil if another worker has taken it.
func (e *Executor) takeOpened() *batch.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.opened
	e.opened = nil
	return s
}

// Metrics returns the executor's measurements.
func (e *Executor) Metrics() *Metrics { return e.metrics }

// Run gives policies their turns as they become due, until ctx ends. Then it returns nil, at most stopTime later. An error means that it
// is not safe to continue, and that a person must find out why.
//
// Run waits while the server is down or refuses connections, and while the audit is unhealthy.
func (e *Executor) Run(ctx context.Context) error {
	counting, stop := context.WithCancel(ctx)
	var snapshots sync.WaitGroup
	snapshots.Go(func() { e.keepSnapshots(counting) })
	err := e.schedule(ctx, endless{e})
	stop()
	snapshots.Wait()
	if errors.Is(err, ErrStopping) {
		return nil
	}
	return stripped("run", err)
}

// schedule runs the workers until the goal is reached, and returns nil. If ctx ends first it returns ErrStopping. When it returns, all
// connections are closed, and all leases are given back or end by themselves.
func (e *Executor) schedule(ctx context.Context, g goal) error {
	defer e.setReady(ErrStopping)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e.guards.begin(e.now())
	if _, is := g.(endless); is {
		e.pass.begin(passTime)
	} else {
		e.pass.begin(0)
	}
	s := newScheduler(g, e.memory, e.now)
	errs, all := make([]error, e.config.Limits.Workers), make([]*worker, e.config.Limits.Workers)
	var workers sync.WaitGroup
	for i := range errs {
		all[i] = e.newWorker(i, s)
		workers.Go(func() {
			defer stop() // a worker ends when the goal is reached, or when no worker should go on
			errs[i] = all[i].run(ctx)
		})
	}
	workers.Wait()
	signOff(all)
	e.takeOpened().Close()
	reached := false
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrStopping) {
			return err
		}
		reached = reached || err == nil
	}
	if !reached {
		return ErrStopping
	}
	return nil
}

// outlasts reports whether to wait out an error that concerns no policy, and logs it if so.
func (e *Executor) outlasts(err error, lost bool) bool {
	if !(circumstances{limit: 2, lost: lost}).pass(err) { // a catalog query that took too long may be quicker next time
		return false
	}
	err = stripped("read the policies", err)
	e.setReady(err)
	e.log.Warn("the database does not answer as it should; trying again", "error", err)
	return true
}
