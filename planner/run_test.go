package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

func TestARunIsOpenedOnceAndGoneOnWith(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
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
		if first.Resumed || time.Since(first.Cutoff).Abs() > run.MaxClockSkew {
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
		if next, err := p.NextRun(); err != nil || next.Before(first.StartedAt.Add(54*time.Minute)) || next.After(first.StartedAt.Add(time.Hour)) {
			t.Errorf("the next run is due %s, %v; want an hour after %s, or a tenth sooner", next, err, first.StartedAt)
		}
		if second := w.open(&p); second.Resumed || second.ID == first.ID || second.Cutoff.Before(first.Cutoff) {
			t.Errorf("got %+v after %+v", second, first)
		}
	})
}

func TestManyExecutorsOpenOneRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		const executors = 6
		runs := make(chan record.Run, executors)
		for range executors {
			conn := db.ConnectAs(t, testRoles.Executor)
			go func() {
				r, err := run.Open(t.Context(), conn, &p, time.Now, run.Options{})
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
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		for _, off := range []time.Duration{run.MaxClockSkew + time.Second, -run.MaxClockSkew - time.Second, time.Hour, -24 * time.Hour} {
			_, err := run.Open(t.Context(), w.exec, &p, func() time.Time { return time.Now().Add(off) }, run.Options{})
			var skew *run.ClockSkewError
			if !errors.As(err, &skew) || skew.Server.IsZero() || skew.Local.IsZero() {
				t.Errorf("a clock %s off: got %v", off, err)
			}
		}
		for _, off := range []time.Duration{3 * time.Second, -3 * time.Second} {
			if _, err := run.Open(t.Context(), w.exec, &p, func() time.Time { return time.Now().Add(off) }, run.Options{}); err != nil {
				t.Errorf("a clock %s off: got %v", off, err)
			}
		}
	})
}

// A run on a table that is not the policy's any more ends as an error that names the policy, never as a run with nothing
// to do.
func TestATableThatIsGoneRenamedOrSwappedStopsItsPolicy(t *testing.T) {
	t.Parallel()
	const another = "shop.T is gone, renamed or another table"
	cases := []struct{ name, sql, trouble, said string }{
		{"dropped", `drop table T`, "shop.T is gone", another},
		{"renamed", `alter table T rename to elsewhere`, "shop.T is shop.elsewhere now", another},
		{"swapped", `create table young (like T including all); alter table T rename to old; alter table young rename to T`, "shop.T is shop.old now", another},
		{"made again", `create table young (like T including all); drop table T; alter table young rename to T`, "shop.T is gone", another},
		{"moved", `alter table T set schema beside`, "shop.T is beside.T now", another},
		{"without its column", `alter table T drop last_seen`, "", "the columns of shop.T are not those that the policy was applied to: last_seen; run `lapse apply` again"},
		{"with a column of that name", `alter table T drop last_seen, add last_seen timestamptz`, "", "the columns of shop.T are not those that the policy was applied to: last_seen; run `lapse apply` again"},
	}
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		must(t, w.script(`create schema beside authorization `+w.app))
		file := "policies:\n"
		for i := range cases {
			table := fmt.Sprintf("t%d", i)
			w.do(`create table ` + table + ` (id bigint primary key, last_seen timestamptz not null)`)
			w.do(`insert into ` + table + ` values (1, now() - interval '1 year')`)
			file += fmt.Sprintf("  - {name: %[1]s, table: shop.%[1]s, expire: {column: last_seen, after: 30 days}, state: armed}\n", table)
		}
		_ = w.armed(file)
		for i, c := range cases {
			table := fmt.Sprintf("t%d", i)
			of := func(text string) string { return strings.ReplaceAll(text, "T", table) }
			p := w.named(schemas.PolicyName(table))
			begun := w.open(&p)
			b := w.lease(p, begun)
			_, err := w.owner.PgConn().Exec(t.Context(), of(c.sql)).ReadAll()
			must(t, err)

			_, err = w.call(b, nil)
			if state := schemas.StateOf(err); state != schemas.SQLStateTarget && state != schemas.SQLStateColumns {
				t.Errorf("%s: a batch: got %v", c.name, err)
			}
			for _, done := range []bool{false, true} {
				must(t, runSQL(w.admin, `update lapse.shard set done = $2 where run = $1`, begun.ID, done))
				_, err := run.Open(t.Context(), w.exec, &p, time.Now, run.Options{})
				var changed *run.SchemaChangedError
				if !errors.As(err, &changed) || changed.Policy != p.Name || changed.What != of(c.said) {
					t.Errorf("%s, a run done %t: got %v, want %q", c.name, done, err, of(c.said))
					continue
				}
				named := fmt.Sprintf("policy %[1]s: %[2]s: check it: run `lapse apply`, and then `lapse policy arm %[1]s` if that leaves it observing", p.Name, of(c.said))
				if c.said == another {
					named += "; if the table is gone for good, take the policy out of its file and run `lapse apply --prune`"
				}
				if err.Error() != named {
					t.Errorf("%s, a run done %t: got %v, want %q", c.name, done, err, named)
				}
			}
			p = w.named(schemas.PolicyName(table))
			if p.Trouble != of(c.trouble) {
				t.Errorf("%s: loaded with trouble %q, want %q", c.name, p.Trouble, of(c.trouble))
			}
			survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			if survey.Trouble == "" || survey.Due != 0 {
				t.Errorf("%s: the survey says %+v", c.name, survey)
			}
		}
	})
}

func TestAForeignPartitionStopsItsPolicy(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		must(t, w.script(`create foreign data wrapper none; create server far foreign data wrapper none; grant usage on foreign server far to public`))
		w.do(`alter table events drop constraint events_pkey`) // no foreign table is a partition beside a key
		w.do(`create foreign table events_far partition of events for values in ('far') server far`)
		var changed *run.SchemaChangedError
		if _, err := run.Open(t.Context(), w.exec, &p, time.Now, run.Options{}); !errors.As(err, &changed) || !strings.Contains(err.Error(), "foreign table") {
			t.Errorf("got %v", err)
		}
	})
}

func TestARunOfWhatIsNotInForceIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (id int primary key, session bigint)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		stale := p
		var notInForce *run.NotInForceError
		for _, state := range []schemas.State{schemas.Observing, schemas.Arming, schemas.Paused, schemas.Dropped} {
			must(t, runSQL(w.admin, `update lapse.gate set state = $1`, state))
			if _, err := run.Open(t.Context(), w.exec, &p, time.Now, run.Options{}); !errors.As(err, &notInForce) {
				t.Errorf("a run of a policy that is %s: got %v", state, err)
			}
		}
		must(t, runSQL(w.admin, `update lapse.gate set state = 'armed'`))
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		if _, err := run.Open(t.Context(), w.exec, &stale, time.Now, run.Options{}); !errors.As(err, &notInForce) {
			t.Errorf("a run of a former version: got %v", err)
		}
		_ = w.open(&p)
		w.do(`alter table clicks add foreign key (session) references sessions on delete cascade`)
		var changed *run.SchemaChangedError
		if _, err := run.Open(t.Context(), w.exec, &p, time.Now, run.Options{}); !errors.As(err, &changed) {
			t.Errorf("after a foreign key was made: got %v", err)
		}
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		_ = w.open(&p)
	})
}

func TestRunsOfFormerVersionsAreClosed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		former := w.open(&p)
		p = w.armed(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"))
		if p.Unfinished != nil || p.LastRun == nil || p.LastRun.ID != former.ID {
			t.Errorf("after a change of version: %+v, %+v; the former run counts for the schedule and is not gone on with", p.LastRun, p.Unfinished)
		}
		current := w.open(&p)
		left := valueOn[[]string](t, w.exec, `select array_agg(run::text order by started_at) from lapse.run`)
		if len(left) != 2 || left[0] != former.ID.String() || left[1] != current.ID.String() {
			t.Errorf("left are %v, want %s and %s", left, former.ID, current.ID)
		}
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where run = $1`, former.ID); n != 0 {
			t.Errorf("the former run has %d shards", n)
		}
	})
}

func TestAPartitionThatWasDroppedDoesNotHoldUpItsRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		w.do(`drop table events_eu`)
		w.do(`alter table events detach partition events_us`)
		p = w.inForce()[0]
		if again := w.open(&p); again.ID != r.ID {
			t.Errorf("the run was begun again: %s after %s", again.ID, r.ID)
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
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, events)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		if p = w.inForce()[0]; p.Unfinished != nil || p.LastRun == nil || p.LastRun.ID != r.ID {
			t.Errorf("loaded are %+v and %+v", p.LastRun, p.Unfinished)
		}
	})
}
