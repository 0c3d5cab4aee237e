package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/schemas"
)

// Config is what an executor is made with.
type Config struct {
	// Database says where, and as whom: the login of the executor's role.
	Database *pgx.ConnConfig
	// Roles are those of the installation. Default: those with the default prefix.
	Roles schemas.Roles
	// TagKey signs claims. It is the auditor's too.
	TagKey schemas.Key
	// Holder names the process to a person who looks at lapse.shard; it is made unique. Default: the host's name.
	Holder string
	Limits Limits
	// Logger gets what happens to policies and runs. Never a row's keys or values. Default: nothing is logged.
	Logger *slog.Logger
	// Progress, if set, is called after every batch. It must not block.
	Progress func(Progress)
	// Clock is the executor's own clock. Default: time.Now.
	Clock func() time.Time
}

// Limits bound what one policy may do before the next has its turn. Zero fields have defaults.
type Limits struct {
	// TurnRows ends a policy's turn. Default 100 000: twenty batches of the usual size.
	TurnRows int64
	// TurnTime ends a policy's turn. Default 5 s: with ten policies at work each waits less than a minute.
	TurnTime time.Duration
	// BatchTime is what the size of batches is adapted to. Default 200 ms: about as long as a session that wants one of
	// the batch's rows waits for it.
	BatchTime time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		TurnRows: cmp.Or(l.TurnRows, 100_000), TurnTime: cmp.Or(l.TurnTime, 5*time.Second),
		BatchTime: cmp.Or(l.BatchTime, 200*time.Millisecond),
	}
}

// Progress says how far this process has come with a run.
type Progress struct {
	Policy   schemas.PolicyName
	Table    string
	Run      uuid.UUID
	Deleted  int64   // from the policy's table
	Cascaded int64   // by foreign keys
	Rate     float64 // rows of both kinds per second
}

// PolicyStatus is how a policy stands, for a status page.
type PolicyStatus struct {
	Policy  schemas.PolicyName    `json:"policy"`
	Table   string                `json:"table"`
	Version schemas.PolicyVersion `json:"version"`
	State   schemas.State         `json:"state"` // the gate's, or "stopped"
	Stopped string                `json:"stopped,omitempty"`
	Until   time.Time             `json:"until,omitzero"`    // when a stopped policy is tried again
	Resists string                `json:"resists,omitempty"` // what was put aside because a row resists
}

const (
	// rereadInterval is how soon a policy that was armed, paused or changed is noticed.
	rereadInterval = 2 * time.Second
	// stopTime is what an open batch gets to finish when the executor is asked to stop. It is rolled back then.
	stopTime = 10 * time.Second
	// patience is how long Once waits for a server that went away.
	patience = time.Minute
	forever  = time.Duration(0)
	notAtAll = time.Duration(-1)
)

// Executor deletes what is due. Make one with New; call either Run or Once, one at a time. Ready, Status and Metrics are
// safe for concurrent use.
type Executor struct {
	config  Config
	holder  string
	log     *slog.Logger
	now     func() time.Time
	metrics *Metrics

	// What follows belongs to the goroutine of Run or Once.
	session *session
	health  health
	known   map[versionKey]*memory
	reason  Reason // of the refusal that was logged
	warned  bool   // that the login is more than the executor's

	mu     sync.Mutex
	ready  error
	status []PolicyStatus
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
	c.Limits = c.Limits.withDefaults()
	return &Executor{
		config: c, holder: c.Holder + "/" + uuid.NewString(), log: c.Logger, now: c.Clock, metrics: newMetrics(),
		known: map[versionKey]*memory{}, ready: errors.New("the executor has not begun"),
	}, nil
}

// Metrics returns the executor's measurements.
func (e *Executor) Metrics() *Metrics { return e.metrics }

// Ready returns nil while policies get their turns, and otherwise why they do not: all of them, or those that are stopped
// by name.
func (e *Executor) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready != nil {
		return e.ready
	}
	var stopped []error
	for i := range e.status {
		if s := &e.status[i]; s.Stopped != "" {
			stopped = append(stopped, fmt.Errorf("policy %s is stopped: %s", s.Policy, s.Stopped))
		}
	}
	return errors.Join(stopped...)
}

func (e *Executor) setReady(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = err
}

// Status returns how each policy stood when the list was last read.
func (e *Executor) Status() []PolicyStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.status)
}

// Run gives policies their turns as they become due, until ctx ends; then it returns nil, at most stopTime later. An
// error means that somebody must look: what it was asked to do is not safe to go on with.
//
// A server that is not there, or refuses, or an audit that is not healthy is waited out.
func (e *Executor) Run(ctx context.Context) error {
	defer e.leave()
	pause := pauses{first: 100 * time.Millisecond, last: 10 * time.Second}
	for ctx.Err() == nil {
		next, err := e.round(ctx)
		switch {
		case errors.Is(err, ErrStopping):
			return nil
		case err != nil && e.passes(err):
			next = e.now().Add(pause.grow())
		case err != nil:
			return stripped("run", err)
		default:
			pause.reset()
		}
		if err := wait(ctx, next.Sub(e.now())); err != nil {
			return nil
		}
	}
	return nil
}

// passes says, and reports, that an error which concerns no policy is worth waiting out.
func (e *Executor) passes(err error) bool {
	if g := e.grade(err, 2); g != Retry && g != Halve { // a catalog query that took too long may be quicker next time
		return false
	}
	err = stripped("read the policies", err)
	e.setReady(err)
	e.log.Warn("the database does not answer as it should; trying again", "error", err)
	return true
}

// leave closes the connection. Leases were given back at the end of each turn.
func (e *Executor) leave() {
	e.setReady(ErrStopping)
	e.session.close()
	e.session = nil
}

// round reads the list and gives each policy that is due one turn. It returns when the next round should be.
func (e *Executor) round(ctx context.Context) (time.Time, error) {
	policies, refusal, err := e.read(ctx, forever)
	if err != nil {
		return time.Time{}, err
	}
	next := e.now().Add(rereadInterval)
	if refusal != nil {
		next = e.now().Add(healthInterval)
	}
	for i := range policies {
		p := &policies[i]
		at, armed := e.due(p)
		if !armed {
			continue
		}
		if at.After(e.now()) {
			next = earlier(next, at)
			continue
		}
		if refusal != nil {
			e.metrics.skips.WithLabelValues(string(p.Name), p.TableName, string(refusal.Reason)).Inc()
			continue
		}
		end, err := e.turn(ctx, p)
		if err != nil {
			return time.Time{}, err
		}
		switch end {
		case turnMore, turnFinished:
			next = e.now()
		default:
			if at, armed := e.due(p); armed {
				next = earlier(next, at)
			}
		}
	}
	return next, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// read looks at the audit and at the list of policies, and moves arming ones along. The refusal, if there is one, has
// been reported.
func (e *Executor) read(ctx context.Context, patience time.Duration) ([]planner.InForce, *Refusal, error) {
	s, err := e.connected(ctx, patience)
	if err != nil {
		return nil, nil, err
	}
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	var refusal *Refusal
	if err := e.health.check(work, s, e.now()); err != nil && !errors.As(err, &refusal) {
		return nil, nil, err
	}
	e.report(refusal)
	if refusal != nil && (refusal.Reason == ReasonStandby || refusal.Reason == ReasonNotInstalled) {
		return nil, refusal, nil
	}
	policies, err := planner.LoadInForce(work, s.control)
	if err != nil {
		return nil, nil, err
	}
	for i := range policies {
		if policies[i].State != schemas.Arming {
			continue
		}
		if err := e.advance(work, s, &policies[i]); err != nil {
			if s.lost() || e.grade(err, 1) == StopProcess {
				return nil, nil, err
			}
			e.log.Warn("policy stays arming", "policy", policies[i].Name, "error", stripped("advance", err))
		}
	}
	e.observe(policies)
	return policies, refusal, nil
}

// advance opens the gate of an arming policy if the auditor has come far enough. It asks twice: the first time ever, the
// answer is only that the position was taken down.
func (e *Executor) advance(ctx context.Context, s *session, p *planner.InForce) error {
	for range 2 {
		if err := s.control.QueryRow(ctx, `select lapse.advance_arming($1)`, int32(p.ID)).Scan(&p.State); err != nil {
			return fmt.Errorf("look whether policy %s may be armed: %w", p.Name, err)
		}
	}
	if p.State == schemas.Armed {
		e.log.Info("policy is armed", "policy", p.Name, "version", p.Version)
	}
	return nil
}

// report says once, for each change, whether anything is deleted at all.
func (e *Executor) report(refusal *Refusal) {
	if refusal == nil {
		if e.reason != "" {
			e.log.Info("deleting again")
		}
		e.reason = ""
		e.setReady(nil)
		return
	}
	if e.reason != refusal.Reason {
		e.log.Warn("nothing is deleted", "reason", refusal.Reason, "detail", refusal.Detail, "fix", refusal.Fix)
	}
	e.reason = refusal.Reason
	e.setReady(refusal)
}

// connected returns the session, or opens one. A server that is not there is waited for: until ctx ends, or for as long
// as patience.
func (e *Executor) connected(ctx context.Context, patience time.Duration) (*session, error) {
	pause := pauses{first: 50 * time.Millisecond, last: 5 * time.Second}
	begun := e.now()
	for e.session.lost() {
		if ctx.Err() != nil {
			return nil, ErrStopping
		}
		e.session.close() // one of its connections may still be there
		e.session = nil
		s, err := connect(ctx, e.config.Database, e.holder, e.config.Limits.BatchTime)
		if err == nil {
			e.session = s
			e.warnOfPower(ctx, s)
			break
		}
		if ctx.Err() != nil {
			return nil, ErrStopping
		}
		if out := patience != forever && e.now().Sub(begun) > patience; out || grade(err, circumstances{lost: true}) != Retry {
			return nil, err
		}
		err = stripped("connect", err)
		e.setReady(err)
		e.log.Warn("no connection to the database; trying again", "error", err)
		if err := wait(ctx, pause.grow()); err != nil {
			return nil, err
		}
	}
	return e.session, nil
}

// warnOfPower says once that the login which deletes can become more than the executor. Code of a table's owner that gets into
// a batch could then, at COMMIT, become it too.
func (e *Executor) warnOfPower(ctx context.Context, s *session) {
	var login string
	var powerful bool
	err := s.control.QueryRow(ctx, `select session_user::text, exists (select from pg_roles r where r.rolname = $1 and pg_has_role(session_user, r.oid, 'member'))`,
		e.config.Roles.Owner).Scan(&login, &powerful)
	if err != nil || !powerful || e.warned {
		return
	}
	e.warned = true
	e.log.Warn("the login that deletes can become the catalog's owner; where tables have owners that do not trust one another, name three logins in database:, see docs/security.md",
		"login", login, "owner", e.config.Roles.Owner)
}

// outlive returns a context that ends some time after ctx does, so that what is open can be brought to its end.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() {
		ended()
		cancel()
	}
}
