package pgserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// session runs f over a superuser's connection of its own.
func (s *Server) session(ctx context.Context, f func(conn *pgx.Conn) error) (err error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return f(conn)
}

func (s *Server) scan(ctx context.Context, sql string, to any) error {
	err := s.session(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql).Scan(to) })
	if err != nil {
		return fmt.Errorf("ask PostgreSQL %d: %w", s.install.Major, err)
	}
	return nil
}

// Timeline is the timeline on which the server writes, or, of a standby, receives.
func (s *Server) Timeline(ctx context.Context) (timeline int, err error) {
	// pg_control_checkpoint has the new timeline only after the first checkpoint on it.
	err = s.scan(ctx, `
		select case when pg_is_in_recovery()
		            then coalesce((select received_tli from pg_stat_wal_receiver), (select timeline_id from pg_control_checkpoint()))
		            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end`, &timeline)
	return timeline, err
}

// FlushLSN is the end of the WAL that is flushed, or, on a standby, replayed.
func (s *Server) FlushLSN(ctx context.Context) (lsn string, err error) {
	err = s.scan(ctx, `
		select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end)::text`, &lsn)
	return lsn, err
}

// SystemIdentifier is the cluster's. Copies share it.
func (s *Server) SystemIdentifier(ctx context.Context) (id uint64, err error) {
	err = s.scan(ctx, `select system_identifier from pg_control_system()`, &id)
	return id, err
}
