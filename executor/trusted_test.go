package executor

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// What a trusted trigger deletes from the policy's table would go under the policy's name, due or not: the batch is undone, and says so.
func TestABatchInWhichATrustedTriggerDeletesFromTheTableIsUndone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 40, 60
		sessions(t, db, due, live)
		owned(t, db, `create function act() returns trigger language plpgsql as $$ begin delete from sessions where id = old.id + 40; return old; end $$`,
			`create trigger act after delete on sessions for each row when (old.id <= 40) execute function act()`)
		arm(t, db, policies(policy("p", "public.sessions", `triggers: {trusted: true, search_path: public}`)))
		if s, err := newExecutor(t, db).Once(t.Context(), nil); err == nil || !strings.Contains(err.Error(), schemas.SQLStateCounts) {
			t.Errorf("it did %+v: %v", s, err)
		}
		left, ledger := one[int](t, db, "select count(*) from sessions"), one[int](t, db, "select count(*) from lapse.batch")
		if left != due+live || ledger != 0 {
			t.Errorf("%d rows are left, and the ledger has %d batches", left, ledger)
		}
	})
}
