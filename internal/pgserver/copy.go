package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/child"
)

// Copy is a copy of a data directory on files. It may be used any number of times, by Restore and by Clone, and outlives
// its server. It is safe for concurrent use.
type Copy struct {
	install Install
	folder  *child.Folder
}

// How says in which way a running server is copied. Replication slots are in every copy, as the last checkpoint left them:
// see WithoutSlots.
type How int

const (
	// Backup copies while the server goes on, between pg_backup_start and pg_backup_stop, with the WAL that makes the copy
	// consistent and a backup_label: a base backup. A server started from it begins at the backup's checkpoint.
	Backup How = iota
	// Frozen holds all processes of the server for as long as the copying takes: what a snapshot of the storage gives. A
	// server started from it recovers as after a crash at that moment.
	Frozen
)

// Snapshot copies the data directory. A server that does not run is copied as it lies there, whatever how says.
func (s *Server) Snapshot(ctx context.Context, how How) (copied *Copy, err error) {
	folder, err := child.NewFolder("pgcopy")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("copy PostgreSQL %d: %w", s.install.Major, err), folder.Remove())
		}
	}()
	copied = &Copy{install: s.install, folder: folder}
	switch {
	case !s.Running():
		err = copyTree(s.dataDir, copied.dataDir())
	case how == Frozen:
		err = s.copyFrozen(copied.dataDir())
	default:
		err = s.copyLive(ctx, copied.dataDir())
	}
	if err != nil {
		return nil, err
	}
	return copied, nil
}

func (s *Server) copyFrozen(to string) (err error) {
	if err := s.Freeze(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Thaw()) }()
	return copyTree(s.dataDir, to)
}

// copyLive takes pg_wal last: it then reaches the position where the backup ends.
func (s *Server) copyLive(ctx context.Context, to string) (err error) {
	begin, end := `select pg_backup_start('copy', true)`, `select labelfile from pg_backup_stop(false)`
	if s.install.Major < 15 {
		begin, end = `select pg_start_backup('copy', true, false)`, `select labelfile from pg_stop_backup(false, false)`
	}
	return s.session(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, begin); err != nil {
			return err
		}
		if err := copyTree(s.dataDir, to, "pg_wal"); err != nil {
			return err
		}
		var label string
		if err := conn.QueryRow(ctx, end).Scan(&label); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, "backup_label"), []byte(label), 0o600); err != nil {
			return err
		}
		return copyTree(filepath.Join(s.dataDir, "pg_wal"), filepath.Join(to, "pg_wal"))
	})
}

func (c *Copy) dataDir() string { return filepath.Join(c.folder.Path, "data") }

// Close removes the copy. Servers made from it go on.
func (c *Copy) Close() error { return c.folder.Remove() }

// passing are files of a running server that mean nothing to another.
var passing = map[string]bool{"postmaster.pid": true, "postmaster.opts": true}

// copyTree copies a folder of a data directory, without what is named. Files that vanish meanwhile are left out.
func copyTree(from, to string, without ...string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			if err := os.MkdirAll(target, 0o700); err != nil {
				return err
			}
			if len(without) > 0 && relative == without[0] {
				return fs.SkipDir
			}
			return nil
		case passing[relative]:
			return nil
		case entry.Type().IsRegular():
			if err := copyFile(path, target); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		default:
			return fmt.Errorf("%s is neither folder nor file: tablespaces are not copied", path)
		}
	})
}

// Change is made to the files of a copy where it is put, before the server starts on them.
type Change func(dataDir string) error

// WithoutSlots empties pg_replslot: a base backup has no slots.
func WithoutSlots() Change {
	return func(dataDir string) error {
		slots := filepath.Join(dataDir, "pg_replslot")
		if err := os.RemoveAll(slots); err != nil {
			return err
		}
		return os.Mkdir(slots, 0o700)
	}
}

// WithoutBackupLabel removes backup_label, as people do whose server does not start from a backup.
func WithoutBackupLabel() Change {
	return func(dataDir string) error {
		err := os.Remove(filepath.Join(dataDir, "backup_label"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
}

// WithSettings are over all others, those of ALTER SYSTEM too.
func WithSettings(settings map[string]string) Change {
	return func(dataDir string) error {
		file, err := os.OpenFile(filepath.Join(dataDir, "postgresql.auto.conf"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		var text strings.Builder
		writeSettings(&text, settings)
		_, err = file.WriteString(text.String())
		return errors.Join(err, file.Close())
	}
}

// Restore ends the server as Kill does, puts the copy in place of its data, and starts it again: same port, same
// folder. Without changes it is what a person has who restores a snapshot of the storage.
func (s *Server) Restore(ctx context.Context, from *Copy, changes ...Change) error {
	if err := s.Kill(); err != nil {
		return err
	}
	if err := s.removeSegment(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dataDir); err != nil {
		return fmt.Errorf("restore PostgreSQL %d: %w", s.install.Major, err)
	}
	if err := s.put(from, changes); err != nil {
		return fmt.Errorf("restore PostgreSQL %d: %w", s.install.Major, err)
	}
	return s.Start(ctx)
}

// Clone starts another server from the copy, on a port and in a folder of its own, beside whatever else runs.
func (c *Copy) Clone(ctx context.Context, changes ...Change) (*Server, error) {
	account, err := child.Unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{install: c.install, options: Options{Install: c.install}, account: account}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("clone PostgreSQL %d: %w", s.install.Major, err), s.removeFolders())
	}
	if err := s.put(c, changes); err != nil {
		return nil, errors.Join(fmt.Errorf("clone PostgreSQL %d: %w", s.install.Major, err), s.removeFolders())
	}
	if err := s.firstStart(ctx); err != nil {
		return nil, errors.Join(err, s.removeFolders())
	}
	return s, nil
}

// put makes the copy the server's data directory.
func (s *Server) put(from *Copy, changes []Change) error {
	if err := copyTree(from.dataDir(), s.dataDir); err != nil {
		return err
	}
	for _, change := range changes {
		if err := change(s.dataDir); err != nil {
			return err
		}
	}
	return s.ownTree(s.dataDir)
}

func (s *Server) ownTree(root string) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, s.account.Own(path))
	})
}
