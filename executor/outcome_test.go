package executor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// cutAt runs Once through a proxy that cuts the COMMIT of the fourth batch, and returns what Once said and what the
// database says. meanwhile runs while a held COMMIT has not been released.
func cutAt(t *testing.T, db *pgtest.DB, what cut, meanwhile func(p *proxy), more ...string) (Summary, *Executor) {
	t.Helper()
	sessions(t, db, 1000, 200)
	arm(t, db, policies(policy("p", "public.sessions", append(more, "batch: 100")...)))
	p, url := startProxy(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
	batches := 0
	e := executorAt(t, url, func(c *Config) {
		c.Progress = func(Progress) {
			if batches++; batches == 3 {
				p.next <- what
			}
		}
	})
	type answer struct {
		summary Summary
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		s, err := e.Once(t.Context(), nil)
		answers <- answer{s, err}
	}()
	<-p.happened
	meanwhile(p)
	got := <-answers
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.summary, e
}

// isExact holds what an executor counted against ledger and table.
func isExact(t *testing.T, db *pgtest.DB, s Summary, due, live int64) {
	t.Helper()
	if got := one[int64](t, db, "select sum(deleted)::bigint from lapse.batch_result"); got != due {
		t.Errorf("the ledger has %d rows, want %d", got, due)
	}
	if got := one[int64](t, db, "select count(*) from sessions"); got != live {
		t.Errorf("%d rows are left, want the %d that are not due", got, live)
	}
	if only(t, s).Deleted != due || only(t, s).Outcome != Finished {
		t.Errorf("once says %+v, want %d rows and finished", s, due)
	}
}

func TestACommitThatNeverArrivedIsNotCounted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s, e := cutAt(t, db, dropCommit, func(*proxy) {})
		isExact(t, db, s, 1000, 200)
		if got := counted(t, e, "lapse_batches_total", outcomeLost); got != 1 {
			t.Errorf("%v batches are counted as lost, want 1", got)
		}
	})
}

func TestACommitWhoseAnswerIsLostIsCounted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s, e := cutAt(t, db, dropAnswer, func(*proxy) {})
		isExact(t, db, s, 1000, 200)
		if got := counted(t, e, "lapse_batches_total", outcomeLost); got != 0 {
			t.Errorf("%v batches are counted as lost, want 0", got)
		}
	})
}

// At unlimited pace a COMMIT travels with the next BEGIN.
func TestACommitThatTravelsWithTheNextBeginIsCountedRightToo(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		cut     cut
		arrives bool
		lost    float64
	}{
		"never arrived":            {dropCommit, false, 1},
		"its answer is lost":       {dropAnswer, true, 0},
		"the rest is lost":         {loseRest, true, 0},
		"in progress, and commits": {holding, true, 0},
		"in progress, and aborts":  {holding, false, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				s, e := cutAt(t, db, c.cut, func(p *proxy) {
					if c.cut == holding {
						awaitsOutcome(t, db)
						p.release <- c.arrives
					}
				}, "pace: unlimited")
				isExact(t, db, s, 1000, 200)
				if got := counted(t, e, "lapse_batches_total", outcomeLost); got != c.lost {
					t.Errorf("%v batches are counted as lost, want %v", got, c.lost)
				}
			})
		})
	}
}

// awaitsOutcome returns when the executor has asked at least once what became of a transaction, and has been told to wait.
func awaitsOutcome(t *testing.T, db *pgtest.DB) {
	t.Helper()
	eventually(t, "the executor asks what became of the transaction", func() bool {
		return one[bool](t, db, `select exists (select from pg_stat_activity
			where datname = current_database() and application_name = 'lapse executor' and query like '%pg_xact_status%')`)
	})
}

// While the former backend still has the transaction open, the ledger shows nothing, and then it commits: without waiting it is
// counted wrong.
func TestACommitInProgressIsWaitedFor(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		for arrives, lost := range map[bool]float64{true: 0, false: 1} {
			t.Run(map[bool]string{true: "and commits", false: "and aborts"}[arrives], func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t, db.Major)
				s, e := cutAt(t, db, holding, func(p *proxy) {
					awaitsOutcome(t, db)
					p.release <- arrives
				})
				isExact(t, db, s, 1000, 200)
				if got := counted(t, e, "lapse_batches_total", outcomeLost); got != lost {
					t.Errorf("%v batches are counted as lost, want %v", got, lost)
				}
			})
		}
	})
}

// After a crash of the server an xid that left nothing on disk is given out again. pg_xact_status then speaks of another
// transaction, which committed.
func TestATransactionThatACrashTookIsNotMistakenForAnotherOfTheSameNumber(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		var took batch.Result
		var other schemas.XID
		// Something else may write the log to disk in time; then the number is not given out again.
		for range 10 {
			took = crashInABatch(t, db)
			w := newTestWorker(t, db)
			if committed, err := w.awaitOutcome(t.Context(), &took); committed || err != nil {
				t.Errorf("after the crash: committed %v, %v", committed, err)
			}
			w.close()
			for other = 0; other < took.XID; {
				other = one[schemas.XID](t, db, "select pg_current_xact_id()")
			}
			if other == took.XID {
				break
			}
		}
		if status := one[string](t, db, "select pg_xact_status($1)", took.XID); other != took.XID || status != "committed" {
			t.Fatalf("the number %d was not given out again: %d, %s", took.XID, other, status)
		}
		w := newTestWorker(t, db)
		defer w.close()
		if committed, err := w.awaitOutcome(t.Context(), &took); committed || err != nil {
			t.Errorf("when its number is another's: committed %v, %v", committed, err)
		}
		unborn := batch.Result{Batch: uuid.New(), XID: took.XID + 1_000_000}
		if committed, err := w.awaitOutcome(t.Context(), &unborn); committed || err != nil {
			t.Errorf("a number that was not given out yet: committed %v, %v", committed, err)
		}
	}, pgtest.Settings(map[string]string{"wal_writer_delay": "10s"}))
}

// crashInABatch kills the server when a batch has done its work and not committed, and starts it again.
func crashInABatch(t *testing.T, db *pgtest.DB) batch.Result {
	t.Helper()
	db.Exec(t, expireLeases)
	w := open(t, db, "p")
	done, commit, err := w.openBatch(t, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err == nil {
		t.Error("a batch committed on a server that was killed")
	}
	if err := db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return done
}

func TestAnUnknownCommitIsNotGuessedWhenTheExecutorMustStop(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newTestWorker(t, db)
		defer w.close()
		other := db.Connect(t)
		var xid schemas.XID
		if _, err := other.Exec(t.Context(), "begin"); err != nil {
			t.Fatal(err)
		}
		if err := other.QueryRow(t.Context(), "select pg_current_xact_id()").Scan(&xid); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if committed, err := w.awaitOutcome(ctx, &batch.Result{Batch: uuid.New(), XID: xid}); committed || !errors.Is(err, ErrStopping) {
			t.Errorf("of a transaction in progress it says %v, %v; want ErrStopping and no guess", committed, err)
		}
	})
}
