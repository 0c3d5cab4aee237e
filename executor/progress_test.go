package executor

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"lapse/internal/pgtest"
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

func TestABatchThatIsHalvedAgainAndAgainIsLoggedOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 200, 5)
		owned(t, db, "create table keeps (session bigint references sessions)", "insert into keeps values (50)")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 64")))
		var j journal
		e := newExecutor(t, db, j.keep)
		_, _ = e.Once(t.Context(), nil)
		if halved := counted(t, e, "lapse_batches_total", Halve.String()); halved < 3 {
			t.Fatalf("%v batches were halved: this test says nothing", halved)
		}
		if n := strings.Count(j.String(), "is halved"); n != 1 {
			t.Errorf("it is logged %d times:\n%s", n, j.String())
		}
	})
}

// A long run says how far it is where nobody watches: every half minute.
func TestALongRunLogsHowFarItIsEveryHalfMinute(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m := &policyMemory{counts: runCounts{began: began}}
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{1, false}, {29, false}, {30, true}, {59, false}, {61, true}, {62, false}} {
		if got := m.sinceLog(began.Add(step.after * time.Second)); got != step.want {
			t.Errorf("after %d s: logged %t", step.after, got)
		}
	}
}
