package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/child"
)

// Archive is a folder that servers copy their WAL into, and that others are recovered from.
type Archive struct{ folder *child.Folder }

// NewArchive makes an empty one.
func NewArchive() (*Archive, error) {
	folder, err := child.NewFolder("pgarchive")
	if err != nil {
		return nil, err
	}
	account, err := child.Unprivileged()
	if err == nil {
		err = account.Own(folder.Path)
	}
	if err != nil {
		return nil, errors.Join(err, folder.Remove())
	}
	return &Archive{folder: folder}, nil
}

// Settings let a server archive into this folder, from its first start on. A file that is there is not written over: two
// servers of one timeline must not share an archive.
func (a *Archive) Settings() map[string]string {
	return map[string]string{
		"archive_mode": "on",
		"archive_command": fmt.Sprintf(
			`f="%[1]s/%%f"; if test -f "$f"; then cmp -s "%%p" "$f"; else cp "%%p" "$f.partial" && mv "$f.partial" "$f"; fi`,
			a.folder.Path),
	}
}

// Fork is another archive with the WAL of this one and without its history files. A server that is recovered from it
// cannot know which timelines there have been, and takes the next number: so two of them get the same.
func (a *Archive) Fork() (*Archive, error) {
	fork, err := NewArchive()
	if err != nil {
		return nil, err
	}
	files, err := a.files()
	for _, name := range files {
		if err == nil && !strings.HasSuffix(name, ".history") {
			err = copyFile(filepath.Join(a.folder.Path, name), filepath.Join(fork.folder.Path, name))
		}
	}
	var account child.Account
	if err == nil {
		account, err = child.Unprivileged()
	}
	for _, name := range files {
		if path := filepath.Join(fork.folder.Path, name); err == nil && !strings.HasSuffix(name, ".history") {
			err = account.Own(path)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fork an archive: %w", err), fork.Close())
	}
	return fork, nil
}

// files are those that were archived to the end.
func (a *Archive) files() (names []string, err error) {
	entries, err := os.ReadDir(a.folder.Path)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") && !strings.HasSuffix(entry.Name(), ".partial") {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// Close removes the archive.
func (a *Archive) Close() error { return a.folder.Remove() }

// Archive returns when everything that has been committed is in the server's archive: it ends the WAL's segment and waits
// for it.
func (s *Server) Archive(ctx context.Context) error {
	return s.session(ctx, func(conn *pgx.Conn) error {
		var segment string
		// A message first: a switch in a segment without records does nothing.
		err := conn.QueryRow(ctx, `
			select pg_walfile_name(pg_current_wal_insert_lsn()) from pg_logical_emit_message(true, '', '')`).Scan(&segment)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `select pg_switch_wal()`); err != nil {
			return err
		}
		err = poll(ctx, func() (done bool, err error) {
			err = conn.QueryRow(ctx, `
				select coalesce(right(last_archived_wal, 16) >= right($1, 16) and left(last_archived_wal, 8) >= left($1, 8), false)
				  from pg_stat_archiver where last_archived_wal ~ '^[0-9A-F]{24}$'`, segment).Scan(&done)
			if errors.Is(err, pgx.ErrNoRows) {
				return false, nil
			}
			return done, err
		})
		if err != nil {
			return fmt.Errorf("archive %s: %w", segment, err)
		}
		return nil
	})
}

// Target is where recovery ends. All empty: at the archive's end. One of LSN, Name, Time and XID.
type Target struct {
	LSN  string // such as 0/19C2A40; what is there is in
	Name string // of pg_create_restore_point
	Time string // a timestamptz
	XID  string
	// Timeline to follow: latest (the default), current, or a number.
	Timeline string
}

// Recovering makes the start of a copy a point-in-time recovery (PITR) from an archive: the start returns when the server
// is a primary, on a timeline of its own. It archives into the folder into, or, if that is nil, nowhere: then nobody else
// learns of its timeline.
func Recovering(from, into *Archive, target Target) Change {
	return func(dataDir string) error {
		settings := map[string]string{
			"restore_command":          fmt.Sprintf(`cp "%s/%%f" "%%p"`, from.folder.Path),
			"recovery_target_action":   "promote",
			"recovery_target_timeline": "latest",
			"archive_mode":             "on",
			"archive_command":          "true",
		}
		for name, value := range map[string]string{
			"recovery_target_lsn": target.LSN, "recovery_target_name": target.Name,
			"recovery_target_time": target.Time, "recovery_target_xid": target.XID,
		} {
			if value != "" { // An empty one beside another is one too many for PostgreSQL.
				settings[name] = value
			}
		}
		if err := forgetTargets(dataDir); err != nil {
			return err
		}
		if target.Timeline != "" {
			settings["recovery_target_timeline"] = target.Timeline
		}
		if into != nil {
			for name, value := range into.Settings() {
				settings[name] = value
			}
		}
		if err := WithSettings(settings)(dataDir); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dataDir, recoverySignal), nil, 0o600)
	}
}

// recoverySignal makes the start of a server a recovery from an archive. It vanishes a moment before that has ended.
const recoverySignal = "recovery.signal"

// waitRecovered waits until a server that takes connections is a primary.
func (s *Server) waitRecovered(ctx context.Context) error {
	err := s.session(ctx, func(conn *pgx.Conn) error {
		return poll(ctx, func() (done bool, err error) {
			err = conn.QueryRow(ctx, `select not pg_is_in_recovery()`).Scan(&done)
			return done, err
		})
	})
	if err != nil {
		return fmt.Errorf("wait until the recovery has ended: %w", err)
	}
	return nil
}

// forgetTargets removes the target of an earlier recovery, which the copy of a recovered server carries.
func forgetTargets(dataDir string) error {
	path := filepath.Join(dataDir, "postgresql.auto.conf")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "recovery_target") {
			kept.WriteString(line)
		}
	}
	return os.WriteFile(path, []byte(kept.String()), 0o600)
}

// RestorePoint names the present position, for Target.Name.
func (s *Server) RestorePoint(ctx context.Context, name string) error {
	return s.session(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select pg_create_restore_point($1)`, name)
		return err
	})
}

// poll asks until the answer is yes.
func poll(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ask(); err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
