package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// formerly writes batches of so many days ago, a run for each day, as deletions of that time left them.
func formerly(t testing.TB, db *pgtest.DB, day, batches int) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`
		with r as (
		  insert into lapse.run (run, policy_id, version, cutoff, started_at, outcome)
		  select gen_random_uuid(), 1, 1, a, a, 'done' from (select now() - %d * interval '1 day' as a) x returning run, started_at
		), s as (
		  insert into lapse.shard (run, policy_id, version, leaf, cutoff, done) select run, 1, 1, g, started_at, true from r, generate_series(1, 3) g
		), b as (
		  insert into lapse.batch
		  select gen_random_uuid(), 1, 'p', 1, run, started_at, 0, 1, '{}', decode(repeat('00', 32), 'hex'), '1', 1, 1, 1, '1'::xid8, started_at, decode(repeat('00', 32), 'hex')
		    from r, generate_series(1, %d)
		  returning batch, started_at)
		insert into lapse.batch_result (batch, picked, deleted, by_relation, finished_at) select batch, 1, 1, '{}', started_at + interval '3 ms' from b`, day, batches))
}

// pruned calls the function as the executor does until nothing is left to do, and returns how many rows it says went.
func pruned(t testing.TB, db *pgtest.DB, days int) (rows int) {
	t.Helper()
	conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for n := 1; n > 0; rows += n {
		if err := conn.QueryRow(t.Context(), "select lapse.prune($1)", days).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

func kept(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return one[string](t, db, `select format('%s batches, %s results, %s runs, %s shards', (select count(*) from lapse.batch),
		(select count(*) from lapse.batch_result), (select count(*) from lapse.run), (select count(*) from lapse.shard))`)
}

func TestAfterAYearOfBatchesTheCatalogIsAsLargeAsAfterAMonth(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		size := func() int64 {
			return one[int64](t, db, `select sum(pg_total_relation_size('lapse.' || r))::bigint from unnest('{batch,batch_result,run,shard}'::text[]) r`)
		}
		var month int64
		for day := 360; day >= 0; day -= 10 { // so many days ago
			formerly(t, db, day, 1000)
			pruned(t, db, day+30)
			db.Exec(t, "vacuum lapse.batch", "vacuum lapse.batch_result", "vacuum lapse.run", "vacuum lapse.shard")
			if day == 330 {
				month = size()
			}
		}
		if got, want := kept(t, db), "3000 batches, 3000 results, 3 runs, 9 shards"; got != want {
			t.Errorf("after a year there are %s, want %s", got, want)
		}
		if year := size(); year > 2*month {
			t.Errorf("after a month of batches it has %d bytes, after a year %d", month, year)
		}
		days := one[string](t, db, "select format('%s days of %s to %s rows', count(*), min(deleted), max(deleted)) from lapse.deleted_day")
		if want := "34 days of 1000 to 1000 rows"; days != want {
			t.Errorf("what was removed is %s, want %s", days, want)
		}
		due := one[int](t, db, "select count(*) from sessions")
		once(t, newExecutor(t, db), "p")
		if left := one[int](t, db, "select count(*) from sessions"); left != due-5 {
			t.Errorf("%d rows are left", left)
		}
	})
}

func TestTheExecutorPrunesBetweenTurnsAndDeletesWhereItCannot(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		formerly(t, db, 40, 6000) // more than one call removes
		formerly(t, db, 20, 5)
		once(t, newExecutor(t, db, func(c *Config) { c.LedgerDays = 35 }))
		if got, want := kept(t, db), "6 batches, 6 results, 2 runs, 4 shards"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		once(t, newExecutor(t, db))
		formerly(t, db, 50, 5)
		db.Exec(t, "revoke execute on function lapse.prune(int) from lapse_executor")
		owned(t, db, "insert into sessions values (1000, now() - interval '40 days')")
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 1 {
			t.Errorf("without the right to prune: %+v", s)
		}
	})
}

func TestNothingIsPrunedThatTheAuditorHasNotConfirmed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		formerly(t, db, 40, 10)
		requireAudit(t, db)
		if n := pruned(t, db, 30); n != 0 {
			t.Errorf("without a slot %d batches went", n)
		}
		makeSlot(t, db)
		db.Exec(t, "alter table lapse.pruning disable trigger all", "update lapse.pruning set mark = pg_current_wal_insert_lsn() + 1000000, confirmed = null",
			"alter table lapse.pruning enable trigger all")
		if n := pruned(t, db, 30); n != 0 {
			t.Errorf("above the auditor's position %d batches went", n)
		}
		db.Exec(t, "alter table lapse.pruning disable trigger all", "update lapse.pruning set mark = pg_current_wal_insert_lsn()",
			"alter table lapse.pruning enable trigger all", "select pg_logical_emit_message(true, 'x', 'y')")
		confirm(t, db)
		if n := pruned(t, db, 30); n != 10 {
			t.Errorf("%d confirmed batches went, want 10", n)
		}
	})
}

func TestWhatAnUnfinishedRunOrAnUnsettledBatchNeedsIsNotPruned(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		formerly(t, db, 60, 5) // the run that is not over
		db.Exec(t, "update lapse.shard set done = leaf <> 1, batch = (select min(batch::text)::uuid from lapse.batch)")
		formerly(t, db, 50, 5)
		formerly(t, db, 40, 5) // the last run
		if n := pruned(t, db, 30); n != 15 {
			t.Errorf("%d batches and runs went, want all but the batch that a shard was entered with last, and two runs", n)
		}
		if got, want := kept(t, db), "1 batches, 1 results, 2 runs, 6 shards"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		db.Exec(t, "update lapse.shard set done = true")
		pruned(t, db, 30)
		if got, want := kept(t, db), "0 batches, 0 results, 1 runs, 3 shards"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		db.Exec(t, "update lapse.gate set state = 'dropped'")
		pruned(t, db, 30)
		if got, want := kept(t, db), "0 batches, 0 results, 0 runs, 0 shards"; got != want {
			t.Errorf("there are %s, want %s: the policy is dropped", got, want)
		}
	})
}

// A login that can become the catalog's owner has its tables. Even so, rows leave the ledger only on the terms of prune.
func TestNobodyRemovesFromTheLedgerWhatPruneWouldNot(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		once(t, newExecutor(t, db))
		formerly(t, db, 40, 5)
		const set = "update lapse.pruning set before = 'infinity', mark = '0/0', mark_at = 'infinity', confirmed = 'infinity', xid = pg_current_xact_id()"
		for name, c := range map[string]struct{ role, sql, state string }{
			"the owner, a fresh batch":          {"lapse_owner", "delete from lapse.batch where started_at > now() - interval '1 hour'", schemas.SQLStateInsufficientPrivilege},
			"the owner, an old batch":           {"lapse_owner", "delete from lapse.batch", schemas.SQLStateInsufficientPrivilege},
			"the owner, a result":               {"lapse_owner", "delete from lapse.batch_result", schemas.SQLStateInsufficientPrivilege},
			"the owner, in prune's place":       {"lapse_owner", set + "; delete from lapse.batch", schemas.SQLStateInsufficientPrivilege},
			"the owner, a result before":        {"lapse_owner", set + "; delete from lapse.batch_result r using lapse.batch b where b.batch = r.batch and b.started_at < now() - interval '9 days'", schemas.SQLStateInsufficientPrivilege},
			"the owner, a change":               {"lapse_owner", set + "; update lapse.batch set policy = 'q' where started_at < now() - interval '9 days'", schemas.SQLStateInsufficientPrivilege},
			"the owner, all":                    {"lapse_owner", set + "; truncate lapse.batch", schemas.SQLStateInsufficientPrivilege},
			"the owner, another instant":        {"lapse_owner", "delete from lapse.pruning", schemas.SQLStateInsufficientPrivilege},
			"the owner, a second instant":       {"lapse_owner", "insert into lapse.pruning (mark, mark_at) values ('0/0', now())", schemas.SQLStateInsufficientPrivilege},
			"the owner, no instant":             {"lapse_owner", "truncate lapse.pruning", schemas.SQLStateInsufficientPrivilege},
			"the executor, a batch":             {"lapse_executor", "delete from lapse.batch", schemas.SQLStateInsufficientPrivilege},
			"the executor, an instant":          {"lapse_executor", "update lapse.pruning set before = 'infinity'", schemas.SQLStateInsufficientPrivilege},
			"the application":                   {appRole, "select lapse.prune(1)", schemas.SQLStateInsufficientPrivilege},
			"the owner, what prune would, even": {"lapse_owner", set + "; delete from lapse.batch where started_at < now() - interval '9 days'", ""},
			"the executor, in no days":          {"lapse_executor", "select lapse.prune(-1000000)", ""},
		} {
			conn := db.Connect(t)
			_, err := conn.PgConn().Exec(t.Context(), "begin; set local role "+c.role+"; "+c.sql+"; rollback").ReadAll()
			if got := schemas.StateOf(err); got != c.state {
				t.Errorf("%s: %v, want SQLSTATE %q", name, err, c.state)
			}
			_ = conn.Close(context.WithoutCancel(t.Context()))
		}
		if n := pruned(t, db, -5); n != 5 {
			t.Errorf("%d batches went, want those that are older than a day", n)
		}
	})
}

// Two hundred policies that delete a little each minute make far more runs than calls for their batches would remove on the side.
func TestRunsArePrunedUntilNoneIsLeftHoweverFewBatchesTheyHad(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, `insert into lapse.run (run, policy_id, version, cutoff, started_at, outcome)
			select gen_random_uuid(), 1, 1, a, a, 'done' from (select now() - interval '40 days' as a, generate_series(1, 320)) x`)
		formerly(t, db, 40, 1)
		formerly(t, db, 20, 1)
		once(t, newExecutor(t, db, func(c *Config) { c.LedgerDays = 35 }))
		if got, want := kept(t, db), "2 batches, 2 results, 2 runs, 4 shards"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
	})
}

// A table whose partitions come and go would leave an entry of the checks for each of them forever.
func TestWhatTheChecksFoundOfAPartitionThatIsGoneIsPruned(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table events (id bigint, at timestamptz, primary key (id, at)) partition by list (id)",
			"create table events_1 partition of events for values in (1)", "create table events_2 partition of events for values in (2)")
		arm(t, db, policies(policy("p", "public.events")))
		once(t, newExecutor(t, db), "p")
		owned(t, db, "drop table events_1")
		pruned(t, db, 30)
		if got := one[string](t, db, "select string_agg(name, ' ') from lapse.examined"); got != "public.events_2" {
			t.Errorf("entries of %s are left", got)
		}
	})
}

// Several executors prune at once, and none waits for another.
func TestAProcessThatFindsAnotherPruningGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		formerly(t, db, 20, 5)
		holder := connectTo(t, db)
		if _, err := holder.Exec(t.Context(), "begin; select from lapse.pruning for update"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := newExecutor(t, db, func(c *Config) { c.LedgerDays = 15 })
		if _, err := e.Once(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if got := one[int](t, db, "select count(*) from lapse.batch where started_at < now() - interval '9 days'"); got != 5 {
			t.Errorf("%d batches are there, want 5", got)
		}
	})
}
