package executor

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// expireLeases lets 30 seconds pass for every shard.
const expireLeases = `update lapse.shard set lease_until = clock_timestamp() where lease_until is not null`

func TestAShardHasOneHolder(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
			t.Fatal(err)
		}
		var claimed atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			e := newExecutor(t, db)
			wg.Go(func() {
				s, err := batch.Connect(t.Context(), e.config.Database, e.holder, time.Second, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				l, err := s.Acquire(t.Context(), w.run.ID)
				if err != nil {
					t.Error(err)
				}
				if l != nil {
					claimed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := claimed.Load(); n != 1 {
			t.Errorf("%d executors hold the one shard", n)
		}
	})
}

func TestAStalledHolderIsRefusedOnceTheShardIsAnothers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 10)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		stalled := open(t, db, "p")
		// It stalls in the middle of its next batch, which began with the COMMIT of this one, before it calls the function.
		_, _, err := stalled.Delete(t.Context(), stalled.a, testKey, batch.Order{Limit: 10, Follows: func(*batch.Result) bool { return true }})
		if err != nil || !stalled.BegunAhead() {
			t.Fatalf("the next batch is begun: %t, %v", stalled.BegunAhead(), err)
		}
		db.Exec(t, expireLeases)
		other := open(t, db, "p")
		if other.a.Term != stalled.a.Term+1 {
			t.Errorf("the second claim has term %d after %d", other.a.Term, stalled.a.Term)
		}
		_, err = stalled.batch(t, 10)
		if schemas.StateOf(err) != schemas.SQLStateLease {
			t.Errorf("the stalled holder got %v, want a lost lease", err)
		}
		if _, err := stalled.Release(t.Context(), stalled.a.Lease); err != nil {
			t.Fatal(err)
		}
		// Its release took nothing from the other one, which goes on where the first batch ended.
		if done, err := other.batch(t, 10); err != nil || done.Deleted != 10 {
			t.Errorf("the other holder did %+v, %v", done, err)
		}
		if left := one[int](t, db, "select count(*) from sessions"); left != 20 {
			t.Errorf("%d rows are left, want 20", left)
		}
	})
}

func TestAnExpiredLeaseIsRefusedEvenIfNobodyElseClaimedTheShard(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		db.Exec(t, expireLeases)
		_, err := w.batch(t, 10)
		if schemas.StateOf(err) != schemas.SQLStateLease || grade(err, circumstances{limit: 10}) != Retry {
			t.Errorf("got %v, want a lost lease, to be retried", err)
		}
	})
}

func TestABatchRenewsTheLease(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		db.Exec(t, `update lapse.shard set lease_until = clock_timestamp() + interval '5 seconds'`)
		if _, err := w.batch(t, 10); err != nil {
			t.Fatal(err)
		}
		if !one[bool](t, db, `select lease_until > clock_timestamp() + interval '20 seconds' from lapse.shard`) {
			t.Error("the lease was not renewed")
		}
	})
}

func TestAProcessClaimsAShardAgainThatItLostTrackOf(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 0)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		former := *w.a
		w.acquire(t)
		if w.a.Term != former.Term+1 {
			t.Errorf("claimed again with term %d after %d", w.a.Term, former.Term)
		}
		if _, _, err := w.Delete(t.Context(), &former, testKey, batch.Order{Limit: 10}); schemas.StateOf(err) != schemas.SQLStateLease {
			t.Errorf("a batch under the former term got %v", err)
		}
	})
}
