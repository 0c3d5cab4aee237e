package executor

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/backoff"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// resting is an executor whose clock does not move but for batches of batchTime each and for its pauses, which end at once.
type resting struct {
	mu     sync.Mutex
	ahead  time.Duration
	rested []time.Duration // the pauses, in order
}

const restBatch = 10 * time.Millisecond

func (r *resting) config(c *Config) {
	began := time.Now()
	c.Limits.Workers, c.Limits.BatchTime = 1, inOnePortion
	c.Clock = func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return began.Add(r.ahead)
	}
	c.Progress = func(Progress) { r.pass(restBatch) }
}

func (r *resting) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
}

// inOnePortion is so short that no batch has several portions, whose pauses no test can replace.
const inOnePortion = time.Nanosecond

// sleep stands in for the pause's.
func (r *resting) sleep(_ context.Context, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
	r.rested = append(r.rested, d)
	return nil
}

func TestAGentlePolicyRestsAfterEachBatchAndAnUnlimitedOneNever(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 100, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		for name, others := range map[string]int{"alone": 0, "beside others": 3} {
			db.Exec(t, "insert into sessions select g, now() - interval '40 days' from generate_series(1, 100) g on conflict do nothing")
			var r resting
			e := newExecutor(t, db, r.config)
			e.pace.sleep = r.sleep
			for range others {
				e.pace.join(allGentle)
			}
			s := only(t, once(t, e, "p"))
			// The last batch of a run is followed by none.
			if s.Deleted != 100 || len(r.rested) != int(s.Batches)-1 {
				t.Errorf("%s: %d pauses in %+v", name, len(r.rested), s)
			}
			want := time.Duration(float64(restBatch) * (float64(1+others)/quietShare - 1))
			for _, d := range r.rested {
				if d != want {
					t.Errorf("%s: it rested for %v after a batch of %v, want %v", name, d, restBatch, want)
				}
			}
			held := time.Duration(counted(t, e, "lapse_throttle_seconds_total", "p", throttlePace) * float64(time.Second))
			if wanted := time.Duration(len(r.rested)) * want; (held - wanted).Abs() > time.Microsecond {
				t.Errorf("%s: the metric says %v, want %v", name, held, wanted)
			}
		}
		db.Exec(t, "insert into sessions select g, now() - interval '40 days' from generate_series(1, 100) g on conflict do nothing")
		setLimits(t, db, `{"pace": "20%"}`)
		for _, others := range []bool{false, true} {
			var r resting
			e := newExecutor(t, db, r.config)
			e.pace.sleep = r.sleep
			e.pace.look = func(context.Context, *pgx.Conn) (bool, error) { return others, nil }
			e.pace.join(allGentle) // its share is its own
			if s := only(t, once(t, e, "p")); s.Deleted != 100 || len(r.rested) != int(s.Batches)-1 {
				t.Errorf("at a fifth of the time: %d pauses in %+v", len(r.rested), s)
			}
			for _, d := range r.rested {
				if d != 4*restBatch {
					t.Errorf("others: %v: at a fifth of the time it rested for %v after a batch of %v", others, d, restBatch)
				}
			}
			db.Exec(t, "insert into sessions select g, now() - interval '40 days' from generate_series(1, 100) g on conflict do nothing")
		}
		setLimits(t, db, `{"pace": "unlimited"}`)
		var r resting
		e := newExecutor(t, db, r.config)
		e.pace.sleep = r.sleep
		if s := only(t, once(t, e, "p")); s.Deleted != 100 || len(r.rested) != 0 {
			t.Errorf("at unlimited pace: %d pauses in %+v", len(r.rested), s)
		}
		if held := counted(t, e, "lapse_throttle_seconds_total", "p"); held != 0 {
			t.Errorf("at unlimited pace the metric says %v", held)
		}
	})
}

// Whatever ends a batch has cost the server as much.
func TestABatchThatFailsIsFollowedByARestToo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 5)
		owned(t, db, "create table notes (session bigint references sessions)", "create index on notes (session)", "insert into notes values (7)")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		var r resting
		e := newExecutor(t, db, r.config, func(c *Config) {
			clock := c.Clock
			c.Clock = func() time.Time { r.pass(time.Millisecond); return clock() } // so that those batches take time too
		})
		e.pace.sleep = r.sleep
		for range 9 {
			e.pace.join(allGentle) // so that it pauses for far longer than the clock's steps
		}
		_, _ = e.Once(t.Context(), nil)
		batches := int(counted(t, e, "lapse_batches_total"))
		failed := batches - int(counted(t, e, "lapse_batches_total", outcomeCommitted))
		if failed == 0 || len(r.rested) < batches-1 {
			t.Errorf("%d pauses for %d batches; %d failed", len(r.rested), batches, failed)
		}
	})
}

// However slow a server is.
func TestAtGentlePaceABatchFollowsWithinASecond(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		var r resting
		e := newExecutor(t, db, r.config, func(c *Config) { c.Progress = func(Progress) { r.pass(time.Minute) } })
		e.pace.sleep = r.sleep
		s := only(t, once(t, e, "p"))
		if s.Deleted != 30 || len(r.rested) == 0 {
			t.Fatalf("%d pauses in %+v", len(r.rested), s)
		}
		for _, d := range r.rested {
			if d != longestGentlePause {
				t.Errorf("it rested for %v after a batch of a minute, want %v", d, longestGentlePause)
			}
		}
	})
}

func TestWorkersOfOtherProcessesShareTheTime(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		two(t, db, 50)
		setPace := func(pace string) { setLimits(t, db, `{"pace": "`+pace+`"}`) }
		other := open(t, db, "a")
		count := func(p *record.InForce) float64 {
			t.Helper()
			w := newTestWorker(t, db)
			defer w.close()
			if err := w.connect(t.Context(), forever); err != nil {
				t.Fatal(err)
			}
			defer w.pace.join(budgetOf(p))()
			if err := w.shareTime(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			return w.pace.share(p)
		}
		second := open(t, db, "b")
		gentle, fifth := &record.InForce{}, &record.InForce{}
		fifth.ID, fifth.Limits.Pace = second.a.Policy, "20%"
		setPace("gentle")
		if got := count(gentle); got != quietShare/2 {
			t.Errorf("beside two leases it has %v of the time, want half of %v", got, quietShare)
		}
		setPace("unlimited")
		if got := count(gentle); got != quietShare {
			t.Errorf("beside two leases of policies that are not gentle it has %v of the time", got)
		}
		setPace("20%") // each of the two policies has a fifth
		if got := count(fifth); got != 0.2 {
			t.Errorf("beside another policy's lease a fifth of the time is %v", got)
		}
		if got := count(gentle); got != quietShare {
			t.Errorf("beside two leases of policies with shares of their own it has %v of the time", got)
		}
		setPace("gentle")
		for _, w := range []*work{other, second} {
			if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
				t.Fatal(err)
			}
		}
		if got := count(gentle); got != quietShare {
			t.Errorf("when they are given back it has %v of the time", got)
		}
	})
}

func TestBatchesOfOneProcessRunOneAtATimeUnlessOneLastsLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newPace()
		var running, most atomic.Int32
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for range 5 {
					leave := c.enter(t.Context())
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					_ = backoff.Sleep(t.Context(), 2*time.Millisecond)
					running.Add(-1)
					leave()
				}
			})
		}
		workers.Wait()
		if most.Load() != 1 {
			t.Errorf("%d batches ran side by side", most.Load())
		}
		long := c.enter(t.Context())
		began := time.Now()
		leave := c.enter(t.Context())
		if waited := time.Since(began); waited != gentleLane {
			t.Errorf("beside a batch that lasts the next one waited %v, want %v", waited, gentleLane)
		}
		leave()
		long()
		began = time.Now()
		c.enter(t.Context())()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("with nobody there it waited %v", waited)
		}
	})
}

// What the batch's own transaction sees, by a trigger that the policy trusts.
func TestABatchsLimitsAreThoseOfItsPaceAndItsNameSaysPolicyAndRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 17, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 5)
		db.Exec(t, "create table public.seen (name text, lock text, statement text, idle text, whole text); grant all on public.seen to public")
		owned(t, db, `create function public.note() returns trigger language plpgsql as $f$
			begin
			  insert into public.seen values (current_setting('application_name'), current_setting('lock_timeout'), current_setting('statement_timeout'),
			    current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_timeout', true));
			  perform set_config('lock_timeout', '1h', false), set_config('application_name', 'x', false);
			  return old;
			end $f$`, "create trigger note before delete on sessions for each row execute function public.note()")
		arm(t, db, policies(policy("p", "public.sessions", "triggers: trusted")))
		whole := ""
		if db.Major >= 17 {
			whole = "4s"
		}
		for pace, lock := range map[string]string{"gentle": "5ms", "unlimited": "250ms"} {
			db.Exec(t, "truncate public.seen")
			setLimits(t, db, `{"pace": "`+pace+`"}`)
			w := open(t, db, "p")
			for range 2 { // what the first one's trigger did to the session is not left for the second
				if _, err := w.batch(t, 10); err != nil {
					t.Fatal(err)
				}
			}
			want := "lapse: p " + w.run.ID.String()[24:] + "|" + lock + "|2s|10s|" + whole
			if got := one[string](t, db, "select string_agg(distinct concat_ws('|', name, lock, statement, idle, coalesce(whole, '')), ' and ') from public.seen where name <> 'x' or lock <> '1h'"); got != want {
				t.Errorf("%s: a batch has %s, want %s", pace, got, want)
			}
			if n := one[int](t, db, "select count(*) from public.seen where name <> 'x'"); n != 2 {
				t.Errorf("%s: %d rows of 2 were the first of their batch", pace, n)
			}
			var name string
			if err := w.Batches.QueryRow(t.Context(), "select current_setting('application_name')").Scan(&name); err != nil || name == "" {
				t.Errorf("%q, %v", name, err)
			}
			if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestABatchThatIsBlockedSaysWhoseItIsAndGivesUp(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		setLimits(t, db, `{"pace": "unlimited"}`)
		locker, err := db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Exec(t.Context(), "lock table sessions in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "alter database "+db.Name+" set deadlock_timeout = '1min'")
		w := open(t, db, "p")
		w.a.Limits.Lock = 30 * time.Second // so that it can be checked
		ended := make(chan error, 1)
		go func() {
			_, err := w.batch(t, 10)
			ended <- err
		}()
		eventually(t, "the server shows a blocked batch with its policy and run", func() bool {
			return one[bool](t, db, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and application_name = $1)",
				"lapse: p "+w.run.ID.String()[24:])
		})
		if err := locker.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if locker, err = db.Connect(t).Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Exec(t.Context(), "lock table sessions in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		w.a.Limits.Lock = 5 * time.Millisecond // as at gentle pace
		if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
			t.Errorf("a blocked batch ends with %v", err)
		}
	})
}

func TestStatusSaysWhyBatchesAreHeldBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 100, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		var r resting
		e := newExecutor(t, db, r.config, func(c *Config) { c.Limits.TurnRows = 20 })
		e.pace.sleep = r.sleep
		var during delay
		rows := 0
		progress := e.config.Progress
		e.config.Progress = func(p Progress) {
			progress(p)
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, m := range e.known {
				if p.Deleted > 50 {
					during, rows = m.pauses.now(), m.sizing.rows()
				}
			}
		}
		once(t, e)
		if during.throttled != throttlePace || during.share != quietShare || rows == 0 {
			t.Errorf("during the run it is said: %+v, batches of %d", during, rows)
		}
	})
}
