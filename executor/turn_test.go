package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/planner/run"
	"lapse/schemas"
)

// two makes two tables with due rows, and a policy for each.
func two(t *testing.T, db *pgtest.DB, due int) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		owned(t, db, fmt.Sprintf("create table %s (id int primary key, at timestamptz); create index on %[1]s (at, id)", name),
			fmt.Sprintf("insert into %s select g, now() - interval '40 days' from generate_series(1, %d) g", name, due))
	}
	arm(t, db, policies(policy("a", "public.a", "batch: 10", "pace: unlimited"), policy("b", "public.b", "batch: 10", "pace: unlimited")))
}

func TestPoliciesTakeTurns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 100)
		var order []string
		once(t, newExecutor(t, db, func(c *Config) {
			c.Limits.Workers, c.Limits.TurnRows, c.Limits.BatchTime = 1, 20, time.Hour // no batch is made smaller
			c.Progress = func(p Progress) { order = append(order, string(p.Policy)) }
		}))
		if got := strings.Join(order, ""); !strings.HasPrefix(got, "aabbaabbaabb") {
			t.Errorf("the batches went to %s, want turns of two", got)
		}
		if n := one[int](t, db, "select (select count(*) from a) + (select count(*) from b)"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

func TestATurnEndsWithItsTimeToo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 50)
		var order []string
		once(t, newExecutor(t, db, func(c *Config) {
			c.Limits.Workers, c.Limits.TurnTime, c.Limits.BatchTime = 1, time.Nanosecond, time.Hour
			c.Progress = func(p Progress) { order = append(order, string(p.Policy)) }
		}))
		if got := strings.Join(order, ""); !strings.HasPrefix(got, "ababab") {
			t.Errorf("the batches went to %s, want turns of one", got)
		}
	})
}

func TestAStoppedPolicyDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		two(t, db, 50)
		owned(t, db, "alter table a rename at to was")
		e := newExecutor(t, db)
		s, err := e.Once(t.Context(), nil)
		var changed *run.SchemaChangedError
		if !errors.As(err, &changed) || changed.Policy != "a" || strings.Contains(err.Error(), "policy b") || strings.Count(err.Error(), "policy a: ") != 1 {
			t.Errorf("once says %v, want that policy a was stopped because its columns are others, named once", err)
		}
		if len(s.Policies) != 2 {
			t.Errorf("once did %+v, want both policies", s.Policies)
		}
		for _, p := range s.Policies {
			if want := map[schemas.PolicyName]Outcome{"a": Stopped, "b": Finished}[p.Policy]; p.Outcome != want {
				t.Errorf("policy %s: %s, want %s", p.Policy, p.Outcome, want)
			}
		}
		if n := one[int](t, db, "select count(*) from b"); n != 0 {
			t.Errorf("%d rows are left in b", n)
		}
		if counted(t, e, "lapse_policy_state", "a", string(stateStopped)) != 1 || counted(t, e, "lapse_policy_state", "b", string(schemas.Armed)) != 1 {
			t.Error("the metric does not say which policy is stopped")
		}
	})
}

func TestAStoppedPolicyIsTriedAgainAtItsNextScheduledTime(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions", "every: 3 seconds")))
		owned(t, db, "alter table sessions rename to away")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the policy is stopped", func() bool {
			return slices.ContainsFunc(e.policyStates(), func(p policyStatus) bool { return p.state == stateStopped && p.stopped != "" && !p.until.IsZero() })
		})
		owned(t, db, "alter table away rename to sessions")
		eventually(t, "the policy goes on", func() bool { return one[int](t, db, "select count(*) from sessions") == 5 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRunKeepsToTheScheduleAndSeesWhatIsApplied(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the executor is ready", func() bool { return e.Ready() == nil })
		apply(t, db, policies(policy("p", "public.sessions", "every: 2 seconds")))
		gone := func() bool { return one[int](t, db, "select count(*) from sessions where id <= 50") == 0 }
		eventually(t, "the policy is armed and runs", gone)
		db.Exec(t, "insert into sessions values (1, now() - interval '40 days')")
		eventually(t, "it runs again", gone)
		db.Exec(t, "update lapse.gate set state = 'paused'", "insert into sessions values (2, now() - interval '40 days')")
		eventually(t, "the pause is seen", func() bool {
			return len(e.policyStates()) == 1 && e.policyStates()[0].state == schemas.Paused
		})
		db.Exec(t, "update lapse.gate set state = 'armed'")
		eventually(t, "it goes on", gone)
		eventually(t, "runs are measured", func() bool { return counted(t, e, "lapse_run_seconds") >= 1 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !errors.Is(e.Ready(), ErrStopping) {
			t.Errorf("stopped, and says %v", e.Ready())
		}
	})
}

// The shortest period is kept to, although the list of policies is otherwise read every two seconds.
func TestAPolicyRunsEveryTenthOfASecond(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	sessions(t, db, 5, 5)
	arm(t, db, policies(policy("p", "public.sessions", "every: 100 milliseconds")))
	// A look that finds nothing is no run: rows fall due all the time.
	db.Exec(t, "insert into sessions select 1000 + n, now() - interval '720 hours' + n * interval '100 milliseconds' from generate_series(1, 3000) n")
	e := newExecutor(t, db)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	eventually(t, "there are ten runs", func() bool { return one[int](t, db, "select count(*) from lapse.run") >= 10 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const gaps = "from (select started_at - lag(started_at) over (order by started_at) as gap from lapse.run) g"
	if !one[bool](t, db, "select min(gap) >= '100 milliseconds' and min(gap) < '1900 milliseconds' "+gaps) {
		t.Errorf("from one run to the next it took %s", one[string](t, db, "select string_agg(gap::text, ' ') "+gaps))
	}
}

func TestOnceRunsWhatIsDueOrWhatIsNamed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 20)
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 2 {
			t.Fatalf("the first pass did %+v", s)
		}
		db.Exec(t, "insert into a select g, now() - interval '40 days' from generate_series(1, 7) g")
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 0 {
			t.Errorf("nothing is due by the schedule, and the pass did %+v", s)
		}
		s := once(t, newExecutor(t, db), "a")
		if only(t, s).Policy != "a" || only(t, s).Deleted != 7 || only(t, s).Table != "public.a" {
			t.Errorf("a by name did %+v", s)
		}
	})
}

func TestOnceRefusesAPolicyThatIsNotThereOrNotArmed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		two(t, db, 20)
		_, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"c"})
		var unknown *UnknownPolicyError
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "a, b") {
			t.Errorf("got %v, want an unknown policy and those that there are", err)
		}
		db.Exec(t, "update lapse.gate set state = 'observing'")
		_, err = newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"a"})
		var unarmed *NotArmedError
		if !errors.As(err, &unarmed) || !strings.Contains(err.Error(), "state: armed") {
			t.Errorf("got %v, want a policy that is not armed, and what arms it", err)
		}
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 0 {
			t.Errorf("policies that only observe ran: %+v", s)
		}
	})
}

// `lapse apply` leaves a policy arming; who calls Once next does not want to call it again.
func TestOnceWaitsAMomentForAPolicyThatIsArming(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		requireAudit(t, db)
		makeSlot(t, db)
		pgtest.Beat(t, db)
		apply(t, db, policies(policy("p", "public.sessions")))
		e := newExecutor(t, db)
		type answer struct {
			summary Summary
			err     error
		}
		answers := make(chan answer, 1)
		go func() {
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p", "p"})
			answers <- answer{s, err}
		}()
		eventually(t, "the position was recorded", func() bool {
			return one[bool](t, db, "select arming_lsn is not null from lapse.gate")
		})
		if left := one[int](t, db, "select count(*) from sessions"); left != 25 {
			t.Errorf("%d rows are left of 25 before the auditor has passed the position", left)
		}
		confirm(t, db)
		got := <-answers
		if got.err != nil || only(t, got.summary).Deleted != 20 {
			t.Errorf("once says %+v, %v", got.summary, got.err)
		}
	})
}

func TestOnceDoesNotWaitForAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	_, err := executorAt(t, "postgres://lapse_executor@127.0.0.1:1/x?sslmode=disable").Once(t.Context(), nil)
	var refused *pgconn.ConnectError
	if !errors.As(err, &refused) || time.Since(begun) > serverPatience/2 {
		t.Errorf("got %v after %v, want that nobody listens there", err, time.Since(begun))
	}
}

func TestRunEndsWithAnErrorThatWaitingDoesNotCure(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	err := executorAt(t, db.Server.URL("lapse_executor", "no_such_database")).Run(t.Context())
	var server *ServerError
	if !errors.As(err, &server) || server.SQLState != "3D000" {
		t.Errorf("got %v, want that there is no such database", err)
	}
}

func TestAClockThatIsWrongStopsThePolicy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		e := newExecutor(t, db, func(c *Config) { c.Clock = func() time.Time { return time.Now().Add(time.Minute) } })
		_, err := e.Once(t.Context(), nil)
		var skew *run.ClockSkewError
		if !errors.As(err, &skew) {
			t.Errorf("got %v, want a complaint about the clocks", err)
		}
		if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
			t.Errorf("%d rows are left of 55", left)
		}
	})
}

func TestBatchesGrowTowardsTheirTimeAndShrinkFromAboveIt(t *testing.T) {
	t.Parallel()
	const want = 200 * time.Millisecond
	var p batchSize
	if got := p.next(5000); got != firstBatch {
		t.Errorf("the first batch has %d rows", got)
	}
	for _, step := range []struct {
		limit int
		full  bool
		took  time.Duration
		size  int
	}{
		{500, true, 10 * time.Millisecond, 2000}, // four times at most
		{2000, true, 100 * time.Millisecond, 4000},
		{4000, false, 10 * time.Millisecond, 4000}, // a short batch says nothing
		{4000, true, 400 * time.Millisecond, 2000},
		{2000, true, 10 * time.Second, 1000}, // half at most
		{1000, true, 250 * time.Millisecond, 800},
	} {
		p.learn(step.limit, step.full, step.took, want)
		if got := p.next(1 << 20); got != step.size {
			t.Errorf("after %+v the size is %d", step, got)
		}
	}
	p.halve(1)
	if got := p.next(5000); got != 1 {
		t.Errorf("half of one row is %d", got)
	}
	if p.learn(1, true, time.Millisecond, want); p.next(1) != 1 {
		t.Errorf("a policy whose largest batch is one row gets %d", p.next(1))
	}
}

func TestAShortTagKeyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{TagKey: schemas.Key("short")}); !errors.Is(err, schemas.ErrKeyTooShort) {
		t.Errorf("got %v", err)
	}
}
