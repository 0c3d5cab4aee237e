package pgtest

import (
	"testing"

	"lapse/internal/child"
	"lapse/internal/pgserver"
)

// What follows changes a server's history, that of every database on it, and ends the server's connections: it needs a
// database from Solo. See pgserver for what each does.

// alone ends a test that would do this to a shared server.
func (db *DB) alone(t testing.TB) *pgserver.Server {
	t.Helper()
	if db.shared {
		t.Fatal("pgtest: other tests share this server: take Solo or OnSolo")
	}
	return db.Server
}

// Snapshot copies the server's files. The copy goes with the test.
func (db *DB) Snapshot(t testing.TB, how pgserver.How) *pgserver.Copy {
	t.Helper()
	copied, err := db.alone(t).Snapshot(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	})
	return copied
}

// Restore puts a copy in place of the server's data: same port, same URL.
func (db *DB) Restore(t testing.TB, from *pgserver.Copy, changes ...pgserver.Change) {
	t.Helper()
	if err := db.alone(t).Restore(t.Context(), from, changes...); err != nil {
		t.Fatal(err)
	}
}

// Clone is this database on another server, made from a copy. The server goes with the test.
func (db *DB) Clone(t testing.TB, from *pgserver.Copy, changes ...pgserver.Change) *DB {
	t.Helper()
	server, err := from.Clone(t.Context(), changes...)
	if err != nil {
		t.Fatal(err)
	}
	return db.on(t, server)
}

// on is this database on a server that goes with the test.
func (db *DB) on(t testing.TB, server *pgserver.Server) *DB {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of the server on port %d:\n%s", server.Port(), child.Tail(server.LogFile(), 60))
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &DB{Server: server, Major: db.Major, Name: db.Name, URL: server.URL("postgres", db.Name)}
}

// NewArchive makes an archive that goes with the test.
func NewArchive(t testing.TB) *pgserver.Archive {
	t.Helper()
	archive, err := pgserver.NewArchive()
	return keep(t, archive, err)
}

// Fork is an archive with the WAL of another and without its history files. It goes with the test.
func Fork(t testing.TB, archive *pgserver.Archive) *pgserver.Archive {
	t.Helper()
	fork, err := archive.Fork()
	return keep(t, fork, err)
}

func keep(t testing.TB, archive *pgserver.Archive, err error) *pgserver.Archive {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
	})
	return archive
}

// Archiving is the option for Solo that makes the server archive its WAL.
func Archiving(archive *pgserver.Archive) Option { return Settings(archive.Settings()) }

// Archive returns when everything that has been committed is in the server's archive.
func (db *DB) Archive(t testing.TB) {
	t.Helper()
	if err := db.alone(t).Archive(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Standby is this database on a standby.
type Standby struct {
	*DB
	standby *pgserver.Standby
}

// Standby makes a streaming standby of the server, which goes with the test. Its slot is named after the database.
func (db *DB) Standby(t testing.TB) *Standby {
	t.Helper()
	standby, err := db.alone(t).Standby(t.Context(), db.Name+"_standby", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Standby{DB: db.on(t, standby.Server), standby: standby}
}

// CatchUp waits until the standby has replayed all that the primary has flushed.
func (s *Standby) CatchUp(t testing.TB, primary *DB) {
	t.Helper()
	if err := s.standby.WaitReplayed(t.Context(), primary.FlushLSN(t)); err != nil {
		t.Fatal(err)
	}
}

// Detach ends the stream from the primary: what is committed there from now on is lost by Promote.
func (s *Standby) Detach(t testing.TB) {
	t.Helper()
	if err := s.standby.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Attach takes the stream up again.
func (s *Standby) Attach(t testing.TB) {
	t.Helper()
	if err := s.standby.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// SyncSlot waits until a failover slot of the primary would outlive the promotion (PostgreSQL 17 and later). Somebody must
// be reading from the slot, such as an auditor.
func (s *Standby) SyncSlot(t testing.TB, slot string) {
	t.Helper()
	if err := s.standby.WaitSlotSynced(t.Context(), slot, nil); err != nil {
		t.Fatal(err)
	}
}

// Promote makes the standby a primary. The former one is not told.
func (s *Standby) Promote(t testing.TB) {
	t.Helper()
	if err := s.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Timeline is the server's present timeline.
func (db *DB) Timeline(t testing.TB) int {
	t.Helper()
	timeline, err := db.Server.Timeline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return timeline
}

// FlushLSN is the end of the server's flushed WAL, such as 0/19C2A40.
func (db *DB) FlushLSN(t testing.TB) string {
	t.Helper()
	lsn, err := db.Server.FlushLSN(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}
