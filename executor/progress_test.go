package executor

import (
	"bytes"
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

// journal keeps what an executor logs, from Info on.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) keep(c *Config) { c.Logger = slog.New(slog.NewTextHandler(j, nil)) }

func TestARunThatFindsNothingIsNotLogged(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		var first, second journal
		once(t, newExecutor(t, db, first.keep), "p")
		for _, want := range []string{`msg="run deletes"`, `msg="run is over"`, "deleted=50"} {
			if strings.Count(first.String(), want) != 1 {
				t.Errorf("a run that deletes logs %q not once:\n%s", want, first.String())
			}
		}
		once(t, newExecutor(t, db, second.keep), "p")
		if got := second.String(); got != "" {
			t.Errorf("a run that finds nothing logs:\n%s", got)
		}
	})
}

// A run that a change of its policy cuts short has an end in the log, with what this process did in it.
func TestARunThatApplyCutsShortIsSaidToBeOver(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		var j journal
		changed := false
		e := newExecutor(t, db, j.keep, func(c *Config) {
			c.Progress = func(p Progress) {
				if !changed {
					changed = true
					apply(t, db, policies(policy("p", "public.sessions", "batch: 20")))
				}
			}
		})
		if s := once(t, e, "p"); only(t, s).Deleted != 50 {
			t.Errorf("the pass did %+v", only(t, s))
		}
		if over, cut := strings.Count(j.String(), `msg="run is over"`), strings.Count(j.String(), `outcome="cut short" deleted=10 `); over != 2 || cut != 1 {
			t.Errorf("%d runs are said to be over, and %d to be cut short:\n%s", over, cut, j.String())
		}
		if total := only(t, e.Summary()); total.Deleted != 50 || total.Outcome != Finished {
			t.Errorf("the process did %+v", total)
		}
	})
}

func TestABatchThatIsHalvedAgainAndAgainIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var j journal
	e, err := New(Config{Database: nowhere(t), TagKey: testKey, Logger: slog.New(slog.NewTextHandler(&j, nil))})
	if err != nil {
		t.Fatal(err)
	}
	m := newPolicyMemory(&record.InForce{}, nil)
	w, turn := e.newWorker(0, newScheduler(endless{e}, e.memory, e.now)), newTurn(&record.InForce{Name: "p"}, m)
	for run, want := range []int{1, 2} {
		m.begin(&record.Run{ID: uuid.New()}, 0, time.Now())
		for limit := 64; limit > 1; limit /= 2 {
			if end, err := w.failed(t.Context(), turn, &batch.Assignment{Lease: &batch.Lease{}}, batch.Order{Limit: limit}, &pgconn.PgError{Code: schemas.SQLStateQueryCanceled}); end != turnGoesOn || err != nil {
				t.Fatal(end, err)
			}
		}
		if n := strings.Count(j.String(), "takes too long"); n != want {
			t.Errorf("after run %d it is logged %d times:\n%s", run+1, n, j.String())
		}
	}
}

// A long run says how far it is where nobody watches: every half minute.
func TestALongRunLogsHowFarItIsEveryHalfMinute(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m := newPolicyMemory(&record.InForce{}, nil)
	m.begin(&record.Run{ID: uuid.New()}, 0, began)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{1, false}, {29, false}, {30, true}, {59, false}, {61, true}, {62, false}} {
		if got := m.run.progressIsDue(began.Add(step.after * time.Second)); got != step.want {
			t.Errorf("after %d s: logged %t", step.after, got)
		}
	}
}

func TestALogSaysNothingOfAnExpectationThatIsNotKnown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	expecting(log, 0).Info("run deletes", "policy", "p")
	if strings.Contains(out.String(), "expected") {
		t.Errorf("not known: %s", out.String())
	}
	expecting(log, 5).Info("run deletes", "policy", "p")
	if !strings.HasSuffix(out.String(), "expected=5 policy=p\n") {
		t.Errorf("known: %s", out.String())
	}
}
