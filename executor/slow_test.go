package executor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// saying is a guard that says what a test lets it say, of one policy or, where that is "", of all.
type saying struct {
	of     schemas.PolicyName
	answer *atomic.Pointer[guard.Answer]
}

func newSaying(of schemas.PolicyName, a guard.Answer) saying {
	s := saying{of, &atomic.Pointer[guard.Answer]{}}
	s.answer.Store(&a)
	return s
}

func (s saying) Ask(q *guard.Question) guard.Answer {
	if s.of != "" && (q.Policy == nil || q.Policy.Name != s.of) {
		return guard.Answer{}
	}
	return *s.answer.Load()
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// guarded is an executor with one guard more than the product's, and its log.
func guarded(t *testing.T, db *pgtest.DB, more guard.Guard, change ...func(*Config)) (*Executor, *logged) {
	t.Helper()
	var l logged
	e := newExecutor(t, db, append(change, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&l, nil)) })...)
	e.guards.list = append(guard.All(guard.Limits{}, nil), more)
	return e, &l
}

// batchSeconds is the time that all batches took.
func batchSeconds(t *testing.T, e *Executor) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.Metrics().Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "lapse_batch_seconds" {
			for _, m := range f.GetMetric() {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

func TestSlowStretchesThePauseBetweenBatchesAndIsCounted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 200, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		const slowdown = 5
		e, log := guarded(t, db, newSaying("", guard.Answer{
			Verdict: guard.Slow, Slowdown: slowdown, Refusal: guard.Refusal{Reason: "a_test", Detail: "tired", Fix: "rest"},
		}), func(c *Config) { c.Limits.BatchTime = inOnePortion })
		if s := once(t, e); only(t, s).Deleted != 200 {
			t.Errorf("the pass did %+v", only(t, s))
		}
		batches, held := batchSeconds(t, e), counted(t, e, "lapse_throttle_seconds_total", "p", "a_test")
		// The last batch of the shard is followed by none.
		if least := (slowdown - 1) * batches * 0.8; held < least {
			t.Errorf("%.3f s of batches were followed by %.3f s of pauses, want %.3f at least", batches, held, least)
		}
		// The ledger has the time between the end of one batch and the start of the next.
		between := one[float64](t, db, `select sum(extract(epoch from next - finished_at))::float8 from (
			select r.finished_at, lead(b.started_at) over (order by b.started_at) as next
			  from lapse.batch b join lapse.batch_result r using (batch)) x where next is not null`)
		if between < held*0.8 {
			t.Errorf("%.3f s of pauses are counted, and %.3f s lie between batches", held, between)
		}
		if err := e.Ready(); !errors.Is(err, ErrStopping) {
			t.Errorf("readiness says %v", err)
		}
		if n := log.count("deletion is slowed down"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		if log.count("reason=a_test") != 1 || log.count("detail=tired") != 1 || log.count("fix=rest") != 1 {
			t.Error("the log does not say why, or what to do")
		}
	})
}

func TestAPauseBetweenBatchesIsBoundedAndEndsWhenTheExecutorStops(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 200, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		paused := make(chan struct{}, 100)
		e, _ := guarded(t, db, newSaying("", guard.Answer{Verdict: guard.Slow, Slowdown: 1e6, Refusal: guard.Refusal{Reason: "a_test"}}),
			func(c *Config) { c.Progress = func(Progress) { paused <- struct{}{} } })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		<-paused
		<-paused // so that a whole pause lies between
		held := counted(t, e, "lapse_throttle_seconds_total")
		if held < longestPause.Seconds()*0.9 || held > longestPause.Seconds()+10 {
			t.Errorf("the pause took %.1f s, want %v", held, longestPause)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if rest := counted(t, e, "lapse_throttle_seconds_total") - held; rest > longestPause.Seconds()*0.9 {
			t.Errorf("the pause in which it was stopped took %.1f s", rest)
		}
	})
}

func TestWhatAGuardHasAgainstOnePolicyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 50)
		window := newSaying("a", guard.Answer{Verdict: guard.Wait, Refusal: guard.Refusal{Reason: "window", Detail: "closed", Fix: "wait"}})
		e, log := guarded(t, db, window)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the other policy's rows are deleted, and turns are counted that this one does not get", func() bool {
			return one[int](t, db, "select count(*) from b") == 0 && counted(t, e, "lapse_skips_total", "a", "window") >= 2
		})
		if left := one[int](t, db, "select count(*) from a"); left != 50 {
			t.Errorf("%d rows are left of 50 under the policy that waits", left)
		}
		if err := e.Ready(); err != nil {
			t.Errorf("one policy waits, and readiness says %v", err)
		}
		if counted(t, e, "lapse_skips_total", "b") != 0 {
			t.Error("turns of the other policy were skipped")
		}
		window.answer.Store(&guard.Answer{})
		eventually(t, "it goes on by itself", func() bool { return one[int](t, db, "select count(*) from a") == 0 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if no, again := log.count("nothing is deleted"), log.count("deleting again"); no != 1 || again != 1 {
			t.Errorf("the change was logged %d and %d times", no, again)
		}
	})
}

func TestOnceEndsAPolicyThatAGuardRefusesAndNotTheOthers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 50)
		e, _ := guarded(t, db, newSaying("a", guard.Answer{Verdict: guard.Refuse, Refusal: guard.Refusal{Reason: "breaker", Detail: "too many", Fix: "look"}}))
		s, err := e.Once(t.Context(), nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != "breaker" {
			t.Errorf("got %v, want the refusal", err)
		}
		for _, p := range s.Policies {
			if want := map[schemas.PolicyName]Outcome{"a": Stopped, "b": Finished}[p.Policy]; p.Outcome != want {
				t.Errorf("policy %s: %s, want %s", p.Policy, p.Outcome, want)
			}
		}
	})
}

// A guard that changes its mind in the middle of a turn is heard before the next batch, and no lease is kept meanwhile.
func TestAGuardIsAskedBeforeEveryBatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 200, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		g := newSaying("", guard.Answer{})
		batches := 0
		e, _ := guarded(t, db, g, func(c *Config) {
			c.Progress = func(Progress) {
				if batches++; batches == 5 {
					g.answer.Store(&guard.Answer{Verdict: guard.Wait, Refusal: guard.Refusal{Reason: "replica_lag", Detail: "far", Fix: "wait"}})
				}
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "readiness says so", func() bool {
			var refusal *guard.Refusal
			return errors.As(e.Ready(), &refusal) && refusal.Reason == "replica_lag"
		})
		eventually(t, "its leases are given back", func() bool { return one[int](t, db, "select count(holder) from lapse.shard") == 0 })
		if got := one[int](t, db, "select count(*) from lapse.batch"); got != 5 {
			t.Errorf("%d batches, want 5", got)
		}
		g.answer.Store(&guard.Answer{})
		eventually(t, "it goes on", func() bool { return one[int](t, db, "select count(*) from sessions") == 5 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Many workers that ask at once cause one look.
func TestOneLookServesAllWorkers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		g := testGuards(t)
		now := time.Now()
		p := &record.InForce{Name: "p"}
		if _, err := g.ask(t.Context(), w.Control, p, now); err != nil {
			t.Fatal(err)
		}
		_ = w.Control.Close(t.Context()) // another look would fail
		var asked sync.WaitGroup
		for range 8 {
			asked.Go(func() {
				if _, err := g.ask(t.Context(), w.Control, p, now.Add(factsInterval-1)); err != nil {
					t.Error(err)
				}
			})
		}
		asked.Wait()
		if _, err := g.ask(t.Context(), w.Control, p, now.Add(factsInterval)); err == nil {
			t.Error("old facts are believed")
		}
	})
}
