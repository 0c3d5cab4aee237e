package pgserver_test

import (
	"maps"
	"testing"

	"lapse/internal/pgserver"
)

func archive(t *testing.T) *pgserver.Archive {
	t.Helper()
	a, err := pgserver.NewArchive()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// archived runs a test on a server that archives, with the table ids, and with a copy of it.
func archived(t *testing.T, test func(*testing.T, *pgserver.Server, *pgserver.Archive, *pgserver.Copy)) {
	t.Helper()
	wal := archive(t)
	settings := maps.Clone(quiet)
	maps.Copy(settings, wal.Settings())
	on(t, []int{14, 18}, settings, func(t *testing.T, server *pgserver.Server) {
		wal := archive(t)
		exec1(t, server, `alter system set archive_command = '`+wal.Settings()["archive_command"]+`'`)
		exec1(t, server, `select pg_reload_conf()`)
		exec1(t, server, tableOfIDs)
		exec1(t, server, makeSlot)
		test(t, server, wal, snapshot(t, server, pgserver.Backup))
	})
}

func TestAPointInTimeRecoveryEndsAtItsTargetOnANewTimeline(t *testing.T) {
	t.Parallel()
	archived(t, func(t *testing.T, server *pgserver.Server, wal *pgserver.Archive, from *pgserver.Copy) {
		exec1(t, server, `insert into ids values (1)`)
		first := flushed(t, server)
		if err := server.RestorePoint(t.Context(), "named"); err != nil {
			t.Fatal(err)
		}
		exec1(t, server, `insert into ids values (2)`)
		now := query1(t, server, `select clock_timestamp()::text`)
		exec1(t, server, `insert into ids values (3)`)
		if err := server.Archive(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := identity(t, server)
		for target, want := range map[pgserver.Target]string{
			{LSN: first}: "1", {Name: "named"}: "1", {Time: now}: "1,2", {}: "1,2,3",
		} {
			recovered := clone(t, from, pgserver.Recovering(wal, nil, target))
			if got := query1(t, recovered, idsOf); got != want {
				t.Errorf("%+v: rows %q, want %q", target, got, want)
			}
			if got := timeline(t, recovered); got != 2 {
				t.Errorf("%+v: timeline %d, want 2", target, got)
			}
			if got := query1(t, recovered, slotsOf); got != "kept" {
				t.Errorf("%+v: slots %q", target, got)
			}
		}
		if after := identity(t, server); after != before {
			t.Errorf("the original was %s and is %s", before, after)
		}
		restore(t, server, from, pgserver.WithoutSlots(), pgserver.Recovering(wal, nil, pgserver.Target{LSN: first}))
		if rows, slots := query1(t, server, idsOf), query1(t, server, slotsOf); rows != "1" || slots != "" {
			t.Errorf("in place: rows %q, slots %q", rows, slots)
		}
	})
}

func TestTwoRecoveriesBecomeTheSameTimelineIfNeitherKnowsOfTheOther(t *testing.T) {
	t.Parallel()
	archived(t, func(t *testing.T, server *pgserver.Server, wal *pgserver.Archive, from *pgserver.Copy) {
		exec1(t, server, `insert into ids values (1)`)
		target := pgserver.Target{LSN: flushed(t, server)}
		exec1(t, server, `insert into ids values (2)`)
		if err := server.Archive(t.Context()); err != nil {
			t.Fatal(err)
		}
		apart, err := wal.Fork()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = apart.Close() }()

		first := clone(t, from, pgserver.Recovering(wal, wal, target))
		exec1(t, first, `insert into ids values (10)`)
		if err := first.Archive(t.Context()); err != nil {
			t.Fatal(err)
		}
		unaware := clone(t, from, pgserver.Recovering(apart, apart, target))
		target.Timeline = "1"
		aware := clone(t, from, pgserver.Recovering(wal, nil, target))
		if a, b := identity(t, first), identity(t, unaware); a != b || timeline(t, first) != 2 {
			t.Errorf("the two that do not know of each other are %s and %s, want both on timeline 2", a, b)
		}
		if got := timeline(t, aware); got != 3 {
			t.Errorf("the one that found the first one's history file is on timeline %d, want 3", got)
		}
		late, err := wal.Fork()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = late.Close() }()
		again := clone(t, from, pgserver.Recovering(late, nil, target))
		if got := timeline(t, again); got != 2 {
			t.Errorf("an archive without history files led to timeline %d, want 2", got)
		}
	})
}
