package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/schemas"
)

// auditorSession is the auditor's connection for SQL; the connection that streams can run none. It connects when it is used
// first, and again after a failure. Safe for concurrent use.
type auditorSession struct {
	config *pgx.ConnConfig

	mu   sync.Mutex
	conn *pgx.Conn
}

const sessionTimeout = 10 * time.Second

// WriteHeartbeat writes a heartbeat, and fails on any other server or history than the stream's. It also moves the slot of a
// database in which nothing else is written.
func (s *auditorSession) WriteHeartbeat(ctx context.Context, nonce uuid.UUID, place audit.Server) error {
	return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select lapse.beat($1, $2, $3, $4)`, nonce, int32(place.History), int32(place.Timeline), place.ServerStart)
		return err
	})
}

// Doubt takes back the heartbeats that there are.
func (s *auditorSession) Doubt(ctx context.Context) error {
	return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select lapse.doubt()`)
		return err
	})
}

// Alarm stops every deletion in the database until a person runs `lapse resume --all`. It does nothing if deletion is stopped
// already. The stop is on this server's disk when Alarm returns, even with synchronous_commit off: the audit goes on and does
// not come back to it. Alarm waits for no standby.
func (s *auditorSession) Alarm(ctx context.Context, reason string) error {
	return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local synchronous_commit = local`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `select lapse.alarm($1)`, reason)
			return err
		})
	})
}

// End is the end of the WAL: whatever was committed before the call lies below it.
func (s *auditorSession) End(ctx context.Context) (end schemas.LSN, err error) {
	err = s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&end)
	})
	return end, err
}

func (s *auditorSession) with(ctx context.Context, work func(context.Context, *pgx.Conn) error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	if s.conn == nil || s.conn.IsClosed() {
		if s.conn, err = pgx.ConnectConfig(ctx, s.config); err != nil {
			s.conn = nil
			return fmt.Errorf("connect: %w", err)
		}
	}
	return work(ctx, s.conn)
}

// close ends the connection.
func (s *auditorSession) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		closeConn(s.conn)
		s.conn = nil
	}
}
