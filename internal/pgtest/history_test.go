package pgtest_test

import (
	"testing"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

func TestADatabaseCanBeRestoredClonedAndPromoted(t *testing.T) {
	t.Parallel()
	archive := pgtest.NewArchive(t)
	db := pgtest.Solo(t, pgtest.Newest(t), pgtest.Archiving(archive))
	rows := func(of *pgtest.DB) (n int) {
		if err := of.Connect(t).QueryRow(t.Context(), `select count(*) from r`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := func(what string, of *pgtest.DB, wantRows, wantTimeline int) {
		if n, timeline := rows(of), of.Timeline(t); n != wantRows || timeline != wantTimeline {
			t.Errorf("%s: %d rows on timeline %d, want %d on %d", what, n, timeline, wantRows, wantTimeline)
		}
	}
	db.Exec(t, `create table r (id int)`)
	copied := db.Snapshot(t, pgserver.Backup)
	db.Exec(t, `insert into r values (1)`)
	lsn := db.FlushLSN(t)
	db.Exec(t, `insert into r values (2)`)
	db.Archive(t)

	standby := db.Standby(t)
	standby.CatchUp(t, db)
	standby.Detach(t)
	db.Exec(t, `insert into r values (3)`)
	standby.Promote(t)
	want("the promoted standby", standby.DB, 2, 2)

	want("the recovered clone", db.Clone(t, copied, pgserver.Recovering(pgtest.Fork(t, archive), nil, pgserver.Target{LSN: lsn})), 1, 2)
	want("the original", db, 3, 1)
	db.Restore(t, copied)
	want("the restored", db, 0, 1)
}
