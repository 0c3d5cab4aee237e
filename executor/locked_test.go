package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// A table that stays locked is warned of when that begins, and not each time that a turn meets it.
func TestATableThatStaysLockedIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	sessions(t, db, 5, 1)
	arm(t, db, policies(policy("p", "public.sessions")))
	w := open(t, db, "p")
	var log bytes.Buffer
	e := newExecutor(t, db, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	holder := db.Connect(t)
	if _, err := holder.Exec(t.Context(), "begin; lock table sessions"); err != nil {
		t.Fatal(err)
	}
	m, by := e.memory(w.policy), &worker{Executor: e, session: w.Session}
	_, _, err := w.Delete(t.Context(), w.a, testKey, batch.Order{Limit: 5})
	for range 3 {
		if end, stop := by.trouble(&turn{policy: w.policy, memory: m}, err); end != turnBlocked || stop != nil {
			t.Fatalf("got %v, %v", end, stop)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings of one lock:\n%s", n, &log)
	}
	m.finish(w.policy, &runState{lockedRows: true}, quarantined{})
	if level := m.locks.level(); level != slog.LevelDebug {
		t.Errorf("after a run that left locked rows: %v", level)
	}
	m.finish(w.policy, &runState{}, quarantined{})
	if level := m.locks.level(); level != slog.LevelWarn {
		t.Errorf("after a run that met no lock: %v", level)
	}
}

// A policy that is stopped by the same at each of its times is an error once, and again after a run that ended well.
func TestAPolicyThatStaysStoppedIsAnErrorOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	db := pgtest.New(t, pgtest.Newest(t))
	sessions(t, db, 5, 1)
	arm(t, db, policies(policy("p", "public.sessions")))
	p := open(t, db, "p").policy
	e := newExecutor(t, db, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	errs := func(want int, why string) {
		t.Helper()
		if n := strings.Count(log.String(), "level=ERROR"); n != want {
			t.Errorf("%s: %d errors, want %d:\n%s", why, n, want, &log)
		}
	}
	for range 3 {
		e.stop(p, errors.New("the table is gone"))
	}
	errs(1, "three times by the same")
	e.stop(p, errors.New("a column is gone"))
	errs(2, "by something else")
	e.memory(p).finish(p, &runState{}, quarantined{})
	e.stop(p, errors.New("a column is gone"))
	errs(3, "after a run")
}

// Shards are a run's own: what is known of them ends with it.
func TestLocksThatWereMetAreForgottenWithTheirRun(t *testing.T) {
	t.Parallel()
	m := newPolicyMemory(&record.InForce{}, nil)
	met := &pgconn.PgError{Code: schemas.SQLStateLockNotAvailable}
	run := &record.Run{ID: uuid.New()}
	for range 2 {
		m.begin(run, 0, time.Now())
		m.locks.tried(1, met)
	}
	if m.locks.tries[1] != 2 {
		t.Errorf("in one run %d locks were met", m.locks.tries[1])
	}
	m.begin(&record.Run{ID: uuid.New()}, 0, time.Now())
	if len(m.locks.tries) != 0 {
		t.Errorf("of %d shards of the former run it is known that they were locked", len(m.locks.tries))
	}
}

// Each shard is tried once before the policy pauses because of those that are locked, however many they are, and a worker that meets only these
// leaves the others at work.
func TestManyLockedPartitionsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	const all, locked = 24, 21
	db := pgtest.New(t, pgtest.Newest(t))
	owned(t, db, "create table visits (part int, id bigint, at timestamptz, primary key (part, id)) partition by list (part)", "create index on visits (at, part, id)",
		fmt.Sprintf("do $$begin for i in 1 .. %d loop execute format('create table visits_%%s partition of visits for values in (%%s)', i, i); end loop; end$$", all),
		fmt.Sprintf("insert into visits select p, g, now() - interval '40 days' from generate_series(1, %d) p, generate_series(1, 20) g", all), "analyze visits")
	arm(t, db, policies(policy("p", "public.visits")))
	holder, statements := db.Connect(t), "begin"
	for i := range locked {
		statements += fmt.Sprintf("; lock table visits_%d in share mode", i+1)
	}
	if _, err := holder.Exec(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
	paused := &firstPause{left: -1, count: func() int {
		return one[int](t, db, fmt.Sprintf("select count(*) from visits where part > %d", locked))
	}}
	s, err := newExecutor(t, db, func(c *Config) { c.Logger = slog.New(paused) }).Once(t.Context(), []schemas.PolicyName{"p"})
	if p := only(t, s); err != nil || p.Deleted != 20*(all-locked) || !p.LeftBehind {
		t.Errorf("with %d of %d partitions locked: %+v, %v", locked, all, p, err)
	}
	if paused.left > 0 {
		t.Errorf("%d free rows were left when the policy paused", paused.left)
	}
	t.Logf("in %.1f s", only(t, s).Whole.Seconds)
}

// firstPause counts what is left when a policy pauses first because of a lock.
type firstPause struct {
	count func() int
	mu    sync.Mutex
	left  int
}

func (*firstPause) Enabled(context.Context, slog.Level) bool { return true }
func (f *firstPause) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f *firstPause) WithGroup(string) slog.Handler          { return f }

func (f *firstPause) Handle(_ context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left < 0 && r.Message == "the batch is tried again" {
		f.left = f.count()
	}
	return nil
}

// A policy whose due rows are all put aside makes no run each time that its schedule comes: only when something may be tried, or somebody asks.
func TestAPolicyOfWhichAllIsPutAsideOpensNoRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 1)
		arm(t, db, policies(policy("p", "public.sessions", "every: 100 ms")))
		opened := open(t, db, "p")
		until, err := opened.Session.PutAside(t.Context(), opened.a.Lease, schemas.SQLStateLockNotAvailable)
		if in := time.Until(until); err != nil || in > 30*time.Second {
			t.Fatalf("a locked shard is tried again in %s, %v", in, err)
		}
		db.Exec(t, "update lapse.shard set retry_at = retry_at + interval '1 hour'") // not while this test is at it
		w := newTestWorker(t, db)
		if err := w.connect(t.Context(), forever); err != nil {
			t.Fatal(err)
		}
		defer w.close()
		look := func(whole bool, want int) {
			t.Helper()
			list, err := record.LoadInForce(t.Context(), w.session.Control)
			if err != nil {
				t.Fatal(err)
			}
			if !list[0].LeftBehind {
				t.Error("what the run left is not on record any more")
			}
			turn := newTurn(&list[0], w.memory(&list[0]))
			turn.whole = whole
			due, end, err := w.look(t.Context(), turn)
			if err != nil || len(due) != want || want == 0 && end != turnElsewhere {
				t.Errorf("%d leaves are to be tried, %v, %v; want %d", len(due), end, err, want)
			}
		}
		look(false, 0)
		look(true, 1)
		db.Exec(t, "update lapse.shard set retry_at = clock_timestamp()")
		look(false, 1)
	})
}

// Of a table that somebody has locked, as `create index` does, no row goes along. So no row of the policy's is looked for, one after the other.
func TestALockedReferringTableIsNoRowsFault(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 1)
		owned(t, db, "create table notes (session bigint references sessions on delete cascade)", "create index on notes (session)", "insert into notes select id from sessions")
		arm(t, db, policies(policy("p", "public.sessions")))
		holder := db.Connect(t)
		if _, err := holder.Exec(t.Context(), "begin; lock table notes in share mode"); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
		if p := only(t, s); err != nil || p.Deleted != 0 || !p.LeftBehind {
			t.Errorf("with the referring table locked: %+v, %v", p, err)
		}
		if n := counted(t, e, "lapse_batches_total", "halve") + counted(t, e, "lapse_batches_total", "step_over"); n != 0 {
			t.Errorf("%v batches looked for a row", n)
		}
	})
}

// A shard that somebody has locked waits, and the others go first: the policy pauses where it comes again.
func TestALockedPartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	parts(t, db, 1000)
	arm(t, db, policies(policy("p", "public.visits", "batch: 100")))
	w := open(t, db, "p")
	holder := db.Connect(t)
	if _, err := holder.Exec(t.Context(), "begin; lock table visits_1 in share mode; lock table visits_2 in share mode"); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, db)
	m, by := e.memory(w.policy), &worker{Executor: e, session: w.Session}
	o := batch.Order{Limit: 5, Careful: true}
	_, _, met := w.Delete(t.Context(), w.a, testKey, o)
	failed := func(want turnEnd) {
		t.Helper()
		turn := &turn{policy: w.policy, memory: m, workers: 1}
		end, err := by.failed(t.Context(), turn, w.a, o, met)
		if err != nil {
			end, err = by.trouble(turn, err)
		}
		if end != want || err != nil {
			t.Errorf("got %v, %v, want %v", end, err, want)
		}
	}
	failed(turnShardOver)
	failed(turnBlocked)
	if by := m.locks.by(); by.process != int32(holder.PgConn().PID()) { // #nosec G115 -- a process id
		t.Errorf("the partition is locked by %+v, want process %d", by, holder.PgConn().PID())
	}
	failed(turnShardOver)
	if _, err := holder.Exec(t.Context(), "rollback; begin; lock table visits_1 in share mode"); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, expireLeases)
	s, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"})
	if p := only(t, s); err != nil || p.Deleted != 1000 || !p.LeftBehind {
		t.Errorf("with one of two partitions locked: %+v, %v", p, err)
	}
	t.Logf("1,000 rows of the free partition in %.1f s", only(t, s).Whole.Seconds)
}

// A run that a lock kept from a whole leaf has not tried all due rows, however it ended: what is due grows older meanwhile, and the last success is
// what it was.
func TestARunThatALockKeptFromALeafIsNoSuccess(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 1)
		arm(t, db, policies(policy("p", "public.sessions")))
		holder := db.Connect(t)
		if _, err := holder.Exec(t.Context(), "begin; lock table sessions"); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		var age time.Duration
		for n := range 2 {
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			if p := only(t, s); err != nil || p.Deleted != 0 || !p.LeftBehind {
				t.Fatalf("with the table locked: %+v, %v", p, err)
			}
			is := inForce(t, db)[0]
			if is.Success != nil || counted(t, e, "lapse_last_success_timestamp_seconds") > 0 {
				t.Errorf("run %d is a success at %v", n+1, is.Success)
			}
			if is.Ended == nil {
				t.Fatalf("run %d has not ended", n+1)
			}
			late := is.OverdueFor(time.Now().Add(24 * time.Hour)).Truncate(time.Minute)
			if late < age || late < 22*time.Hour { // armed just now, and due each hour
				t.Errorf("after run %d what is due is %v old, before %v", n+1, late, age)
			}
			age = late
			db.Exec(t, "update lapse.shard set retry_at = null where retry_at is not null")
		}
		if _, err := holder.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Once(t.Context(), []schemas.PolicyName{"p"}); err != nil {
			t.Fatal(err)
		}
		if is := inForce(t, db)[0]; is.Success == nil || counted(t, e, "lapse_last_success_timestamp_seconds") == 0 {
			t.Error("a run that tried all is no success")
		}
	})
}
