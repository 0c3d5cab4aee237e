package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// Where a policy's batches follow each other at once each costs two round trips; elsewhere COMMIT goes alone.
func TestOnlyBatchesThatFollowAtOnceAreBegunAhead(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		for pace, wanted := range map[string]bool{`"pace": "unlimited"`: true, `"pace": ""`: false, `"pace": "unlimited", "rate": 100000`: false} {
			db := pgtest.New(t, db.Major)
			sessions(t, db, 100, 5)
			arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
			setLimits(t, db, "{"+pace+"}")
			ahead := 0
			var w *worker
			e := newExecutor(t, db)
			run := open(t, db, "p")
			e.holder = run.holder
			w = e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
			if err := w.connect(t.Context(), notAtAll); err != nil {
				t.Fatal(err)
			}
			e.config.Progress = func(Progress) {
				if w.session.BegunAhead() {
					ahead++
				}
			}
			turn := newTurn(run.policy, w.memory(run.policy))
			turn.opened(&run.run, 1000, w.now().Add(1e12))
			if end, err := w.shard(t.Context(), t.Context(), turn, run.a.Lease); err != nil || end != turnShardOver {
				t.Fatal(end, err)
			}
			batches := int(turn.memory.run.now().batches)
			// Not all but the last: on a busy machine a guard may have to be asked in between.
			if wanted && (ahead <= batches/2 || ahead >= batches) || !wanted && ahead != 0 {
				t.Errorf("%s: of %d batches %d were begun ahead", pace, batches, ahead)
			}
			if w.session.BegunAhead() {
				t.Errorf("%s: a transaction is left open", pace)
			}
			w.close()
		}
	})
}
