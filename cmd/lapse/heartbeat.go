package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/replication"
)

// auditorSession is the auditor's connection for SQL, beside the one that streams and can run none. It connects with its
// first use, and again after a failure. Safe for concurrent use.
type auditorSession struct {
	config *pgx.ConnConfig

	mu   sync.Mutex
	conn *pgx.Conn
}

const sessionTimeout = 10 * time.Second

// Beat writes the auditor's sign of life. It also moves the slot of a database in which nothing else is written.
func (s *auditorSession) Beat(ctx context.Context, timeline replication.Timeline) error {
	return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select lapse.beat($1)`, int32(timeline))
		return err
	})
}

// End is the end of the log: whatever was committed before the call lies below it.
func (s *auditorSession) End(ctx context.Context) (end replication.LSN, err error) {
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
		hangUp(s.conn)
		s.conn = nil
	}
}
