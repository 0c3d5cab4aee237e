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
	// lockShare is the part of the server's deadlock_timeout that a batch waits for a lock, and mostLockTime its bound. A session that waits
	// for longer than deadlock_timeout searches for a deadlock, and the one that finds it is its victim. That must never be the application.
	lockShare    = 4
	mostLockTime = 250 * time.Millisecond
	// gentleLockTime is that bound at gentle pace: sessions that queue behind a batch that waits for its lock wait too.
	gentleLockTime = 5 * time.Millisecond
	// statementShare is how much longer than wanted a batch may take before it is ended, leastStatementTime what it gets at
	// least, so that a cold disk does not end every batch, and mostStatementTime its bound.
	statementShare     = 10
	leastStatementTime = time.Second
	mostStatementTime  = 15 * time.Second
	// idleTime is how long a transaction of a batch may wait for the executor.
	idleTime = 10 * time.Second
	// withTransactionTimeout is the first version of PostgreSQL that has transaction_timeout.
	withTransactionTimeout = 170000
)

// Session is a worker's way to the database. Not safe for concurrent use.
type Session struct {
	// control reads the catalog, takes leases and checks the audit. Nothing of a policy's table is read or run in it.
	Control *pgx.Conn
	// batches runs the deletion functions, and nothing else: the table's code may run in it, and change its settings.
	Batches *pgx.Conn
	holder  string   // the worker whose leases it takes
	planned *Program // those that ran in it last
	Ahead   *ahead   // the next batch's transaction, if it was begun with a COMMIT
	system  uint64   // the cluster's identifier, as claims have it
	oid     uint32   // the database's
	// lockTime and statementTime bound a batch's statements where its policy's pace does not ask for less.
	lockTime, statementTime time.Duration
	// committing says that a COMMIT is not answered. The server is sent no cancel request then: one that comes while it waits
	// for a synchronous standby would end that wait, and the batch would be durable on one server only.
	committing atomic.Bool
}

// Connect opens a session that takes leases as holder. A batch that takes far longer than batchTime is ended, and an answer is waited
// for until answer has passed, 0 for answerTime.
func Connect(ctx context.Context, config *pgx.ConnConfig, holder string, batchTime, answer time.Duration) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s := &Session{holder: holder}
	if err := s.open(ctx, config, batchTime, cmp.Or(answer, answerTime)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) open(ctx context.Context, config *pgx.ConnConfig, batchTime, answer time.Duration) (err error) {
	config = config.Copy()
	config.DialFunc = s.dialer(config.DialFunc, answer)
	if s.Control, err = pgx.ConnectConfig(ctx, withParameters(config, controlSettings())); err != nil {
		return err
	}
	var system, deadlock int64
	var version int
	err = s.Control.QueryRow(ctx, `
		select c.system_identifier, d.oid, (select setting::bigint from pg_settings where name = 'deadlock_timeout'),
		       current_setting('server_version_num')::int
		  from pg_control_system() c, pg_database d
		 where d.datname = current_database()`).Scan(&system, &s.oid, &deadlock, &version)
	if err != nil {
		return fmt.Errorf("identify the database: %w", err)
	}
	if version >= withTransactionTimeout { // its statements have a bound; before that version the parameter would be refused
		if _, err := s.Control.Exec(ctx, "set transaction_timeout = 0"); err != nil {
			return fmt.Errorf("set transaction_timeout: %w", err)
		}
	}
	s.system = uint64(system)
	s.lockTime, s.statementTime = lockTime(time.Duration(deadlock)*time.Millisecond), statementTime(batchTime)
	batches := withParameters(config, batchSettings(s.lockTime, s.statementTime, version))
	batches.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // no statement has a name
	s.Batches, err = pgx.ConnectConfig(ctx, batches)
	return err
}

// controlSettings and batchSettings are what the two connections start with beside schemas.SessionSettings: startup
// parameters are what RESET ALL goes back to. A batch that waits for a lock, or that the executor forgot because it was
// stopped or cut off, must not block the application. All times are far below the lease.
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
		settings["transaction_timeout"] = milliseconds(min(2*statement, mostStatementTime+idleTime/2))
	}
	return settings
}

// milliseconds is a time as PostgreSQL shows it in a setting.
func milliseconds(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// lockTime is how long a batch waits for a lock at most.
func lockTime(deadlock time.Duration) time.Duration {
	return max(min(deadlock/lockShare, mostLockTime), time.Millisecond)
}

// statementTime ends a batch that takes far longer than it should.
func statementTime(batchTime time.Duration) time.Duration {
	return min(max(statementShare*batchTime, leastStatementTime), mostStatementTime)
}

// Limits are what one policy's batches have beside the session's settings, each for its transaction alone.
type Limits struct {
	name            string // application_name
	Lock, Statement time.Duration
}

// limitsFor says what a policy's batches in a run are bounded by, and called.
func (s *Session) limitsFor(p *record.InForce, run uuid.UUID) Limits {
	l := Limits{name: batchName(p.Name, run), Lock: s.lockTime, Statement: s.statementTime}
	if p.Limits.Pace != policyfile.PaceUnlimited {
		l.Lock = min(l.Lock, gentleLockTime)
	}
	return l
}

// longestName is what PostgreSQL keeps of an application_name.
const longestName = 63

// batchName shows policy and run in pg_stat_activity: of the run the last twelve digits of its id, which surely differ between
// two runs, and of the policy's name as much as fits.
func batchName(p schemas.PolicyName, run uuid.UUID) string {
	const before = "lapse: "
	last := " " + run.String()[24:]
	return before + string(p[:min(len(p), longestName-len(before)-len(last))]) + last
}

// withParameters is config with what a session of ours starts with, and more.
func withParameters(config *pgx.ConnConfig, more map[string]string) *pgx.ConnConfig {
	c := config.Copy()
	schemas.PinSession(c.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(c.RuntimeParams, more)
	return c
}

// Lost says whether a connection is gone.
func (s *Session) Lost() bool { return s == nil || s.Control.IsClosed() || s.Batches.IsClosed() }

// Mute says whether the catalog cannot be written to.
func (s *Session) Mute() bool { return s == nil || s.Control.IsClosed() }

// Close ends the session. PostgreSQL rolls back what was open.
func (s *Session) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, conn := range []*pgx.Conn{s.Batches, s.Control} {
		if conn != nil {
			_ = conn.Close(ctx)
		}
	}
}
