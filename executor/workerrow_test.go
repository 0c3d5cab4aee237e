package executor

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
)

// What holds a policy's batches back is said with what to do about it: its rate, an index that somebody dropped under the run, a guard's
// reason, a lock that is in the way of its next batch, with the next try.
//
//lapse:long
func TestAProcessSaysWhatHoldsItsBatchesBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10000, 5)
		owned(t, db, "create table others (id bigint primary key, at timestamptz)", "create index on others (at, id)",
			"insert into others select g, now() - interval '40 days' from generate_series(1, 50) g", "analyze others")
		arm(t, db, policies(policy("p", "public.sessions", "every: 1 second", "rate: 20"), policy("q", "public.others", "every: 1 second", "max_fraction: 1")))
		locked, err := db.Connect(t).Begin(t.Context())
		if err == nil {
			_, err = locked.Exec(t.Context(), "lock table others in access exclusive mode")
		}
		if err != nil {
			t.Fatal(err)
		}
		var log logged
		slow := newSaying("p", guard.Answer{})
		e := newExecutor(t, db, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		e.guards.list = append(guard.All(guard.Limits{}, nil), slow)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		saysOf := func(name, what string) {
			t.Helper()
			eventually(t, "it says "+what, func() bool {
				return strings.HasPrefix(one[string](t, db, `select coalesce(max(w.state || ' ' || (w.next_try is not null) || ' ' || w.reason), '')
					from lapse.worker w join lapse.gate g using (policy_id) where g.name = $1`, name), what)
			})
		}
		says := func(what string) {
			t.Helper()
			saysOf("p", what)
		}
		again := func() {
			for _, p := range inForce(t, db) {
				e.memory(&p).index.change(func(i *indexFacts) { i.askedAt = time.Time{} })
			}
		}
		says("slow false rate: its rate allows 20 rows each second")
		owned(t, db, "drop index sessions_at_id_idx")
		again()
		says("slow false no_index: no index on public.sessions begins with at, so that every batch reads the whole of it: create index concurrently ")
		owned(t, db, "create index on sessions (at, id)")
		again()
		says("slow false rate:")
		slow.answer.Store(&guard.Answer{Verdict: guard.Slow, Slowdown: 2, Refusal: guard.Refusal{Reason: "a_test", Detail: "tired: 7", Fix: "rest"}})
		says("slow false a_test: tired: 7: rest")
		slow.answer.Store(&guard.Answer{Verdict: guard.Slow, Slowdown: 2, Refusal: guard.Refusal{Reason: "a_test", Detail: "tired: 8", Fix: "rest"}})
		says("slow false a_test: tired: 8: rest")
		slow.answer.Store(&guard.Answer{})
		eventually(t, "it says who has the table of the other policy locked", func() bool {
			return one[bool](t, db, `select coalesce(bool_or(w.state = 'waiting' and w.next_try is not null
				and (w.reason like 'table_locked: %' or w.reason like 'in the last run process % has locked what is due')), false)
				from lapse.worker w join lapse.gate g using (policy_id) where g.name = 'q'`)
		})
		if err := locked.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		eventually(t, "the other policy goes on", func() bool { return one[int](t, db, "select count(*) from others") == 0 })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if missing, there := log.count("no index finds the policy's due rows"), log.count("an index finds the policy's due rows again"); missing != 1 || there != 1 {
			t.Errorf("it is logged %d times that there is no index, and %d times that there is one", missing, there)
		}
	})
}
