package planner

import (
	"errors"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestARunIsOpenedOnceAndGoneOnWith(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		if p.LastRun != nil || p.Unfinished != nil {
			t.Errorf("a policy that never ran has runs: %+v, %+v", p.LastRun, p.Unfinished)
		}
		if next, err := p.NextRun(); err != nil || !next.Equal(p.Since) {
			t.Errorf("the first run is due %s, %v; want at once, since %s", next, err, p.Since)
		}
		first := w.open(&p)
		if first.Resumed || time.Since(first.Cutoff).Abs() > MaxClockSkew {
			t.Errorf("got %+v", first)
		}
		again := w.open(&p)
		if !again.Resumed || again.ID != first.ID || !again.Cutoff.Equal(first.Cutoff) {
			t.Errorf("got %+v, want the run of before, %+v", again, first)
		}
		p = w.inForce()[0]
		if p.Unfinished == nil || p.Unfinished.ID != first.ID || p.LastRun == nil || p.LastRun.ID != first.ID {
			t.Errorf("loaded are %+v and %+v, want %+v", p.LastRun, p.Unfinished, first)
		}
		if next, err := p.NextRun(); err != nil || !next.Equal(first.StartedAt) {
			t.Errorf("an unfinished run is due %s, %v; want since %s", next, err, first.StartedAt)
		}
		w.deleteAll(p, first, 100)
		p = w.inForce()[0]
		if p.Unfinished != nil || p.LastRun == nil || p.LastRun.ID != first.ID {
			t.Errorf("loaded are %+v and %+v, want the finished run", p.LastRun, p.Unfinished)
		}
		if next, err := p.NextRun(); err != nil || !next.Equal(first.StartedAt.Add(time.Hour)) {
			t.Errorf("the next run is due %s, %v; want an hour after %s", next, err, first.StartedAt)
		}
		if second := w.open(&p); second.Resumed || second.ID == first.ID || second.Cutoff.Before(first.Cutoff) {
			t.Errorf("got %+v after %+v", second, first)
		}
	})
}

func TestManyExecutorsOpenOneRun(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		const executors = 6
		runs := make(chan Run, executors)
		for range executors {
			conn := db.ConnectAs(t, testRoles.Executor)
			go func() {
				r, err := OpenRun(t.Context(), conn, &p, time.Now)
				if err != nil {
					t.Error(err)
				}
				runs <- r
			}()
		}
		opened, ids := 0, map[string]bool{}
		for range executors {
			r := <-runs
			ids[r.ID.String()] = true
			if !r.Resumed {
				opened++
			}
		}
		if opened != 1 || len(ids) != 1 {
			t.Errorf("%d executors opened a run, %d runs are there; want one", opened, len(ids))
		}
	})
}

func TestACutoffThatCannotBeTrustedIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		for _, off := range []time.Duration{MaxClockSkew + time.Second, -MaxClockSkew - time.Second, time.Hour, -24 * time.Hour} {
			_, err := OpenRun(t.Context(), w.exec, &p, func() time.Time { return time.Now().Add(off) })
			var skew *ClockSkewError
			if !errors.As(err, &skew) || skew.Server.IsZero() || skew.Local.IsZero() {
				t.Errorf("a clock %s off: got %v", off, err)
			}
		}
		for _, off := range []time.Duration{3 * time.Second, -3 * time.Second} {
			if _, err := OpenRun(t.Context(), w.exec, &p, func() time.Time { return time.Now().Add(off) }); err != nil {
				t.Errorf("a clock %s off: got %v", off, err)
			}
		}
		must(t, run(w.admin, `delete from lapse.run`))
		must(t, run(w.exec, `insert into lapse.run (run, policy_id, version, cutoff) values (gen_random_uuid(), $1, $2, clock_timestamp() + interval '1 hour')`, p.ID, p.Version))
		_, err := OpenRun(t.Context(), w.exec, &p, time.Now)
		var backwards *CutoffBackwardsError
		if !errors.As(err, &backwards) || !backwards.Last.After(backwards.Server) {
			t.Errorf("a clock before the last cutoff: got %v", err)
		}
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard`); n != 0 {
			t.Errorf("%d shards were made", n)
		}
	})
}

func TestARunOfWhatIsNotInForceIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (id int primary key, session bigint)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		stale := p
		var notInForce *NotInForceError
		for _, state := range []schemas.State{schemas.Observing, schemas.Arming, schemas.Paused, schemas.Dropped} {
			must(t, run(w.admin, `update lapse.gate set state = $1`, state))
			if _, err := OpenRun(t.Context(), w.exec, &p, time.Now); !errors.As(err, &notInForce) {
				t.Errorf("a run of a policy that is %s: got %v", state, err)
			}
		}
		must(t, run(w.admin, `update lapse.gate set state = 'armed'`))
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		if _, err := OpenRun(t.Context(), w.exec, &stale, time.Now); !errors.As(err, &notInForce) {
			t.Errorf("a run of a former version: got %v", err)
		}
		_ = w.open(&p)
		w.do(`alter table clicks add foreign key (session) references sessions on delete cascade`)
		var changed *SchemaChangedError
		if _, err := OpenRun(t.Context(), w.exec, &p, time.Now); !errors.As(err, &changed) {
			t.Errorf("after a foreign key was made: got %v", err)
		}
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		_ = w.open(&p)
	})
}

func TestRunsOfFormerVersionsAreClosedAndOldOnesForgotten(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		former := w.open(&p)
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		if p.Unfinished != nil || p.LastRun == nil || p.LastRun.ID != former.ID {
			t.Errorf("after a change of version: %+v, %+v; the former run counts for the schedule and is not gone on with", p.LastRun, p.Unfinished)
		}
		for _, age := range []string{"8 days", "9 days", "30 days"} {
			must(t, run(w.admin, `insert into lapse.run (run, policy_id, version, cutoff, started_at)
				values (gen_random_uuid(), $1, 1, now() - $2::interval, now() - $2::interval)`, p.ID, age))
		}
		must(t, run(w.admin, `update lapse.run set started_at = now() - interval '6 days' where run = $1`, former.ID))
		current := w.open(&p)
		left := valueOn[[]string](t, w.exec, `select array_agg(run::text order by started_at) from lapse.run`)
		if len(left) != 2 || left[0] != former.ID.String() || left[1] != current.ID.String() {
			t.Errorf("left are %v, want %s and %s", left, former.ID, current.ID)
		}
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where run = $1`, former.ID); n != 0 {
			t.Errorf("the former run has %d shards", n)
		}

		// However old, the newest run stays: the next cutoff is held against it.
		w.deleteAll(p, current, 10)
		must(t, run(w.admin, `update lapse.run set started_at = started_at - interval '1 year', cutoff = cutoff - interval '1 year'`))
		next := w.open(&p)
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.run`); n != 2 {
			t.Errorf("%d runs are left, want the last one and %s", n, next.ID)
		}
	})
}

func TestAPartitionThatWasDroppedDoesNotHoldUpItsRun(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		w.do(`drop table events_eu`)
		w.do(`alter table events detach partition events_us`)
		p = w.inForce()[0]
		if again := w.open(&p); again.ID != r.ID {
			t.Errorf("the run was begun anew: %s after %s", again.ID, r.ID)
		}
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where run = $1 and not done`, r.ID); n != 1 {
			t.Errorf("%d shards are left to do, want that of the one partition that is left", n)
		}
		w.deleteAll(p, r, 10)
		p = w.inForce()[0]
		if next := w.open(&p); next.ID == r.ID {
			t.Error("the run never ends")
		}
	})
}

func TestATableWithoutPartitionsHasARunThatIsFinished(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, events)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		if p = w.inForce()[0]; p.Unfinished != nil || p.LastRun == nil || p.LastRun.ID != r.ID {
			t.Errorf("loaded are %+v and %+v", p.LastRun, p.Unfinished)
		}
	})
}
