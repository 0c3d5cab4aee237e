package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgserver"
)

// Server is a server on which nothing but what is measured happens, with its superuser's session.
type Server struct {
	*pgserver.Server
	Admin *pgx.Conn
}

// StartServer starts one. The settings are over those of all benchmarks.
func StartServer(ctx context.Context, install pgserver.Install, settings map[string]string) (*Server, error) {
	all := map[string]string{"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "20GB", "shared_buffers": "512MB"}
	maps.Copy(all, settings)
	server, err := pgserver.Start(ctx, pgserver.Options{Install: install, Settings: all})
	if err != nil {
		return nil, err
	}
	s := &Server{Server: server}
	if s.Admin, err = s.Connect(ctx, "postgres"); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return s, nil
}

// Close closes session and server.
func (s *Server) Close() error {
	_ = s.Admin.Close(context.Background()) // the server goes
	return s.Server.Close()
}

// Connect connects to a database as the superuser.
func (s *Server) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.SocketURL("postgres", database))
}

// Copy makes a database of another, in its place if it is there. Files are copied rather than logged, which is faster, and the default
// up to PostgreSQL 14.
func (s *Server) Copy(ctx context.Context, from, to string) error {
	sql := "create database " + to + " template " + from
	if s.Install().Major >= 15 {
		sql += " strategy file_copy"
	}
	return errors.Join(s.Drop(ctx, to), Execute(ctx, s.Admin, sql))
}

// Drop drops databases that are there.
func (s *Server) Drop(ctx context.Context, databases ...string) error {
	for _, name := range databases {
		if err := Execute(ctx, s.Admin, "drop database if exists "+name+" with (force)"); err != nil {
			return err
		}
	}
	return nil
}

// DropRoles drops the roles whose names begin so. What belonged to them went with the databases.
func (s *Server) DropRoles(ctx context.Context, prefix string) error {
	rows, err := s.Admin.Query(ctx, `select quote_ident(rolname) from pg_roles where starts_with(rolname, $1)`, prefix)
	if err != nil {
		return err
	}
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, role := range roles {
		if err := Execute(ctx, s.Admin, "drop role "+role); err != nil {
			return err
		}
	}
	return nil
}

// Execute runs statements in one session of the superuser's, each in a transaction of its own.
func (s *Server) Execute(ctx context.Context, database string, statements ...string) error {
	conn, err := s.Connect(ctx, database)
	if err != nil {
		return err
	}
	return errors.Join(Execute(ctx, conn, statements...), conn.Close(context.WithoutCancel(ctx)))
}

// Execute runs statements in a session, each in a transaction of its own.
func Execute(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("%w\nin: %.200s", err, sql)
		}
	}
	return nil
}

// Disk says what a folder's files are on.
func Disk(path string) (string, error) {
	const tmpfs = 0x01021994
	var of syscall.Statfs_t
	if err := syscall.Statfs(path, &of); err != nil {
		return "", fmt.Errorf("file system of %s: %w", path, err)
	}
	if of.Type == tmpfs {
		return "memory, where fsync costs nothing (TMPDIR, LAPSE_TMPDIR)", nil
	}
	return "disk", nil
}
