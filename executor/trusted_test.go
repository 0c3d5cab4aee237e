package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// What a trusted trigger deletes from the policy's table beside a batch is in the ledger's counts, and stops nothing.
func TestATrustedTriggersOwnDeletesAreCountedAndStopNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 40, 60
		sessions(t, db, due, live)
		owned(t, db, `create function act() returns trigger language plpgsql as $$ begin delete from sessions where id = old.id + 40; return old; end $$`,
			`create trigger act after delete on sessions for each row when (old.id <= 40) execute function act()`)
		arm(t, db, policies(policy("p", "public.sessions", `triggers: {trusted: true, search_path: public}`)))
		if p := only(t, once(t, newExecutor(t, db))); p.Deleted != due || p.Outcome != Finished {
			t.Errorf("it did %+v", p)
		}
		got := one[string](t, db, `select sum(deleted) || ' ' || sum((by_relation ->> 'public.sessions'::regclass::oid::text)::int) from lapse.batch_result`)
		if left := one[int](t, db, "select count(*) from sessions"); got != "40 80" || left != live-due {
			t.Errorf("the ledger says %s, and %d rows are left", got, left)
		}
	})
}
