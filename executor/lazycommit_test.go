package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// A server that commits lazily loses in a crash what everybody has seen, and gives out the same transaction ids again. With a
// kept copy of a batch's row one could delete under it in the transaction that gets its id, and the audit would find it true.
func TestABatchWhoseRowWasSeenOutlivesACrashOfAServerThatCommitsLazily(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 60, 30)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		db.Exec(t, "checkpoint")
		if _, err := w.batch(t, 20); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, ledger := one[int](t, db, "select count(*) from sessions"), one[int](t, db, "select count(*) from lapse.batch join lapse.batch_result using (batch)")
		if left != 70 || ledger != 1 {
			t.Errorf("after the crash %d rows are left, want 70, and the ledger has %d batches", left, ledger)
		}
	}, pgtest.Settings(map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}))
}
