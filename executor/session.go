package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

const (
	connectTimeout   = 10 * time.Second
	closeTimeout     = time.Second
	statementTimeout = "15s"
)

// session is one connection to the database, set up for batches. Not safe for concurrent use.
type session struct {
	conn   *pgx.Conn
	holder string // whose leases it takes
	system uint64 // the cluster's identifier, as claims have it
	oid    uint32 // the database's
}

// sessionSettings are what a session starts with beside schemas.SessionSettings. RESET ALL gives them back.
//
// A batch that waits for a lock, or that the executor forgot because it was stopped or cut off, must not stand in the
// application's way: lock_timeout and idle_in_transaction_session_timeout end it. All are far below the lease.
func sessionSettings() map[string]string {
	return map[string]string{
		"application_name":                    "lapse executor",
		"enable_seqscan":                      "off",
		"lock_timeout":                        "1s",
		"statement_timeout":                   statementTimeout,
		"idle_in_transaction_session_timeout": "10s",
	}
}

// connect opens a session that takes leases as holder.
func connect(ctx context.Context, config *pgx.ConnConfig, holder string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config = config.Copy()
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(config.RuntimeParams, sessionSettings())
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, holder: holder}
	if err := s.identify(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) identify(ctx context.Context) error {
	var system int64
	err := s.conn.QueryRow(ctx, `
		select c.system_identifier, d.oid
		  from pg_control_system() c, pg_database d
		 where d.datname = current_database()`).Scan(&system, &s.oid)
	if err != nil {
		return fmt.Errorf("identify the database: %w", err)
	}
	s.system = uint64(system)
	return nil
}

// lost says whether the connection is gone.
func (s *session) lost() bool { return s == nil || s.conn.IsClosed() }

// close ends the session. PostgreSQL rolls back what was open.
func (s *session) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.conn.Close(ctx)
}

// ErrStopping says that the executor was asked to stop before it was done.
var ErrStopping = errors.New("the executor is stopping")

// wait lets d pass, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ErrStopping
	case <-timer.C:
		return nil
	}
}

// pauses grow from the first to the last, doubling.
type pauses struct {
	first, last, next time.Duration
}

func (p *pauses) grow() time.Duration {
	pause := max(p.next, p.first)
	p.next = min(2*pause, p.last)
	return pause
}

func (p *pauses) reset() { p.next = 0 }
