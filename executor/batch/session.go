package batch

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = time.Second
	// A batch waits for a lock for deadlock_timeout/lockShare, at most mostLockTime. A session that waits for longer than
	// deadlock_timeout checks for a deadlock, and PostgreSQL cancels the session that finds one. That must never be the application's.
	lockShare    = 4
	mostLockTime = 250 * time.Millisecond
	// gentleLockTime is the same bound at gentle pace: while a batch waits for a lock, other sessions queue up too.
	gentleLockTime = 5 * time.Millisecond
	// A batch is ended after statementShare times the wanted time, but not before leastStatementTime (a cold disk must not end every
	// batch) and not after mostStatementTime.
	statementShare     = 10
	leastStatementTime = time.Second
	mostStatementTime  = 15 * time.Second
	// idleTime is how long a batch's transaction may stay idle, waiting for the executor.
	idleTime = 10 * time.Second
	// mostTransactionTime is the longest transaction_timeout.
	mostTransactionTime = mostStatementTime + idleTime/2
	// withTransactionTimeout is the first version of PostgreSQL that has transaction_timeout.
	withTransactionTimeout = 170000
)

// Session is a worker's pair of connections to the database. Not safe for concurrent use.
type Session struct {
	// Control reads the catalog, takes leases and checks the audit. It reads and runs nothing of a policy's table.
	Control *pgx.Conn
	// Batches runs only the deletion functions. The table's code may run in it, and may change its settings.
	Batches *pgx.Conn
	holder  string    // the worker in whose name it takes leases
	planned *Program  // the functions that ran in it last
	Ahead   *ahead    // the next batch's transaction, if it was begun with a COMMIT
	system  uint64    // the cluster's system identifier, for claims
	oid     uint32    // of the database
	started time.Time // when the server was
	// lockTime and statementTime bound a batch's statements, unless its policy's pace asks for less.
	lockTime, statementTime time.Duration
	// committing is true while a COMMIT has no answer. No cancel request is sent then: if the COMMIT waits for a synchronous standby, a
	// cancel request would end that wait, and the batch would be durable on one server only.
	committing atomic.Bool
	// opening receives how the opening of Batches ended, once; nil: it was received.
	opening chan error
	giveUp  context.CancelFunc // ends that opening
}

// Connect opens a session that takes leases as holder. A batch that takes far longer than batchTime is ended. answer bounds the wait
// for each answer; 0 means answerTime.
func Connect(ctx context.Context, config *pgx.ConnConfig, holder string, batchTime, answer time.Duration) (*Session, error) {
	s, err := Open(ctx, config, batchTime, answer)
	if err != nil {
		return nil, err
	}
	return s, s.Complete(ctx, holder)
}

// Open opens Control, and begins to open Batches. The session may be used when Complete has returned nil, and Control before.
func Open(ctx context.Context, config *pgx.ConnConfig, batchTime, answer time.Duration) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	s := &Session{opening: make(chan error, 1), giveUp: cancel}
	batches, err := s.open(ctx, config, batchTime, cmp.Or(answer, answerTime))
	if err != nil {
		cancel()
		s.opening = nil
		s.Close()
		return nil, err
	}
	go func() {
		defer cancel()
		var err error
		s.Batches, err = pgx.ConnectConfig(ctx, batches)
		s.opening <- err
	}()
	return s, nil
}

// Complete waits until Batches is open or ctx ends, and lets the session take leases as holder. If it returns an error, the session is closed.
func (s *Session) Complete(ctx context.Context, holder string) error {
	s.holder = holder
	defer context.AfterFunc(ctx, s.giveUp)()
	err := s.opened()
	if err != nil {
		s.Close()
	}
	return err
}

// opened waits until the opening of Batches has ended.
func (s *Session) opened() (err error) {
	if s.opening != nil {
		err, s.opening = <-s.opening, nil
	}
	return err
}

// open opens Control, and returns how to open Batches.
func (s *Session) open(ctx context.Context, config *pgx.ConnConfig, batchTime, answer time.Duration) (batches *pgx.ConnConfig, err error) {
	config = config.Copy()
	config.DialFunc = s.dialer(config.DialFunc, answer)
	if s.Control, err = pgx.ConnectConfig(ctx, withParameters(config, controlSettings())); err != nil {
		return nil, err
	}
	var system, deadlock int64
	var version int
	err = s.Control.QueryRow(ctx, `
		select c.system_identifier, d.oid, (select setting::bigint from pg_settings where name = 'deadlock_timeout'),
		       current_setting('server_version_num')::int, pg_postmaster_start_time()
		  from pg_control_system() c, pg_database d
		 where d.datname = current_database()`).Scan(&system, &s.oid, &deadlock, &version, &s.started)
	if err != nil {
		return nil, fmt.Errorf("identify the database: %w", err)
	}
	if version >= withTransactionTimeout { // its statements have a bound; before that version the parameter would be refused
		if _, err := s.Control.Exec(ctx, "set transaction_timeout = 0"); err != nil {
			return nil, fmt.Errorf("set transaction_timeout: %w", err)
		}
	}
	s.system = uint64(system)
	s.lockTime, s.statementTime = lockTime(time.Duration(deadlock)*time.Millisecond), statementTime(batchTime)
	batches = withParameters(config, batchSettings(s.lockTime, s.statementTime, version))
	batches.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // no statement has a name
	return batches, nil
}

// controlSettings and batchSettings are the startup parameters of the two connections, in addition to schemas.SessionSettings. RESET
// ALL returns to startup parameters. The timeouts keep a batch from blocking the application while it waits for a lock, or after its
// executor was stopped or cut off. All of them are far shorter than the lease.
func controlSettings() map[string]string {
	return map[string]string{
		"application_name": "lapse executor", "lock_timeout": "5s", "statement_timeout": "15s",
		"idle_in_transaction_session_timeout": milliseconds(idleTime),
	}
}

func batchSettings(lock, statement time.Duration, version int) map[string]string {
	settings := map[string]string{
		"application_name": "lapse executor batches", "enable_seqscan": "off",
		"lock_timeout":                        milliseconds(lock),
		"statement_timeout":                   milliseconds(statement),
		"idle_in_transaction_session_timeout": milliseconds(idleTime),
	}
	if version >= withTransactionTimeout {
		settings["transaction_timeout"] = milliseconds(min(2*statement, mostTransactionTime))
	}
	return settings
}

// milliseconds formats a duration as PostgreSQL shows it in a setting.
func milliseconds(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// lockTime is how long a batch waits for a lock, given the server's deadlock_timeout.
func lockTime(deadlock time.Duration) time.Duration {
	return max(min(deadlock/lockShare, mostLockTime), time.Millisecond)
}

// statementTime is the time after which a batch is ended, given its wanted time.
func statementTime(batchTime time.Duration) time.Duration {
	return min(max(statementShare*batchTime, leastStatementTime), mostStatementTime)
}

// Limits are one policy's own settings for a batch. Each batch sets them for its transaction only.
type Limits struct {
	name            string // application_name
	Lock, Statement time.Duration
}

// limitsFor returns the limits and the application_name of a policy's batches in a run.
func (s *Session) limitsFor(p *record.InForce, run uuid.UUID) Limits {
	l := Limits{name: batchName(p.Name, run), Lock: s.lockTime, Statement: s.statementTime}
	if p.Limits.Pace != policyfile.PaceUnlimited {
		l.Lock = min(l.Lock, gentleLockTime)
	}
	return l
}

// longestName is how many bytes of an application_name PostgreSQL keeps.
const longestName = 63

// batchName is the application_name that shows policy and run in pg_stat_activity: as much of the policy's name as fits, and the last
// twelve digits of the run's id, which differ from run to run.
func batchName(p schemas.PolicyName, run uuid.UUID) string {
	const before = "lapse: "
	last := " " + run.String()[24:]
	return before + string(p[:min(len(p), longestName-len(before)-len(last))]) + last
}

// withParameters returns config with the settings of schemas.SessionSettings and more.
func withParameters(config *pgx.ConnConfig, more map[string]string) *pgx.ConnConfig {
	c := config.Copy()
	schemas.PinSession(c.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(c.RuntimeParams, more)
	return c
}

// Server says where Control is: the cluster, the database, and when the server was started.
func (s *Session) Server() (system uint64, database uint32, started time.Time) {
	return s.system, s.oid, s.started
}

// Lost reports whether a connection is closed.
func (s *Session) Lost() bool { return s == nil || s.Control.IsClosed() || s.Batches.IsClosed() }

// Mute reports whether the session cannot write to the catalog.
func (s *Session) Mute() bool { return s == nil || s.Control.IsClosed() }

// Close ends the session. PostgreSQL rolls back an open transaction.
func (s *Session) Close() {
	if s == nil {
		return
	}
	if s.opening != nil {
		s.giveUp()
		_ = s.opened()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, conn := range []*pgx.Conn{s.Batches, s.Control} {
		if conn != nil {
			_ = conn.Close(ctx)
		}
	}
}
