package executor

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

func TestABatchLeavesALedgerRowWhoseMACVerifies(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 5)
		owned(t, db, "create table logins (id int primary key, session bigint references sessions on delete cascade)",
			"insert into logins select g, g from generate_series(1, 20) g")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		w := open(t, db, "p")
		done, err := w.batch(t, 10)
		if err != nil {
			t.Fatal(err)
		}
		// The oldest have the highest numbers, and no logins.
		if done.Picked != 10 || done.Deleted != 10 || done.Cascaded != 0 || done.Finished {
			t.Errorf("the first batch did %+v", done)
		}
		if done, err = w.batch(t, 10); err != nil || done.Deleted != 10 || done.Cascaded != 10 {
			t.Errorf("the second batch did %+v, %v; want 10 rows and 10 by cascade", done, err)
		}
		what := digestOf(t, w)
		for _, c := range ledger(t, db) {
			if c.claim.Functions != what.Keyed(testKey) || c.claim.Functions == what {
				t.Errorf("batch %v has the digest %x of what ran", c.claim.Batch, c.claim.Functions)
			}
			if !c.claim.Verify(testKey, c.mac) {
				t.Errorf("the MAC of batch %v does not verify", c.claim.Batch)
			}
			if c.claim.Verify(schemas.Key(slices.Repeat([]byte("x"), 32)), c.mac) {
				t.Errorf("the MAC of batch %v verifies under any key", c.claim.Batch)
			}
		}
		if rows := one[int](t, db, "select count(*) from lapse.batch"); rows != 2 {
			t.Errorf("%d ledger rows for 2 batches", rows)
		}
	})
}

// digestOf is the digest, without a key, of what a batch runs.
func digestOf(t testing.TB, w *work) schemas.Digest {
	t.Helper()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	all, err := functions.Of(&w.policy.Definition, roles)
	if err != nil {
		t.Fatal(err)
	}
	shared, _, err := schemas.RunFunctions(roles)
	if err != nil {
		t.Fatal(err)
	}
	var run []schemas.Function
	for _, name := range []string{functions.DeleteFunction(w.policy.ID, w.policy.Version), functions.FindFunction(w.policy.ID, w.policy.Version)} {
		run = append(run, all[slices.IndexFunc(all, func(f schemas.Function) bool { return f.Name == name })])
	}
	return schemas.DigestOf(append(run, shared...)...)
}

// entry is a row of the ledger.
type entry struct {
	claim schemas.Claim
	mac   []byte
}

// ledger reads lapse.batch, in commit order as far as batch ids show it.
func ledger(t testing.TB, db *pgtest.DB) []entry {
	t.Helper()
	conn := db.Connect(t)
	rows, err := conn.Query(t.Context(), `
		select system_identifier, database_oid, history, timeline, xid, started_at, batch, policy_id, policy, policy_version, run, cutoff,
		       hold_version, target, cascades, functions, mac
		  from lapse.batch order by batch`)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (entry, error) {
		var e entry
		var system string
		var functions []byte
		c := &e.claim
		err := row.Scan(&system, &c.DatabaseOID, &c.History, &c.Timeline, &c.XID, &c.StartedAt, &c.Batch, &c.PolicyID, &c.Policy, &c.PolicyVersion,
			&c.Run, &c.Cutoff, &c.HoldVersion, &c.Target, &c.Cascades, &functions, &e.mac)
		copy(c.Functions[:], functions)
		if err == nil {
			c.SystemIdentifier, err = strconv.ParseUint(system, 10, 64)
		}
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestALookThatFindsNothingLeavesNoLedgerRow(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 0, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		done, err := w.batch(t, 10)
		if err != nil || done.Picked != 0 || !done.Finished {
			t.Errorf("the batch did %+v, %v", done, err)
		}
		if rows := one[int](t, db, "select count(*) from lapse.batch"); rows != 0 {
			t.Errorf("%d ledger rows", rows)
		}
	})
}

// A batch that reads the whole table makes a run quadratic.
func TestABatchLooksAtItsOwnRowsOnly(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20_000, 20_000)
		arm(t, db, policies(policy("p", "public.sessions")))
		const scans = "select coalesce(sum(seq_scan), 0) from pg_stat_user_tables where relname = 'sessions'"
		eventually(t, "what the test itself did is counted", func() bool {
			return one[int](t, db, "select coalesce(sum(n_tup_ins), 0) from pg_stat_user_tables where relname = 'sessions'") == 40_000
		})
		before := one[int](t, db, scans)
		once(t, newExecutor(t, db))
		eventually(t, "what the executor did is counted", func() bool {
			return one[int](t, db, "select coalesce(sum(n_tup_del), 0) from pg_stat_user_tables where relname = 'sessions'") == 20_000
		})
		if after := one[int](t, db, scans); after != before {
			t.Errorf("%d batches read the whole table", after-before)
		}
	})
}

// A thief of the executor's login, without the tag key, can delete what is due anyway, under a MAC that does not verify, and
// can do nothing else.
func TestAStolenLoginDeletesOnlyWhatIsDueAndItsMACDoesNotVerify(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 30, 30)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		w := open(t, db, "p")
		w.forge(t, func(c *schemas.Claim) { c.Cutoff = time.Now().Add(time.Hour) }, 10, schemas.SQLStateCutoff)
		w.forge(t, func(c *schemas.Claim) { c.Cutoff = c.Cutoff.Add(-time.Hour) }, 10, schemas.SQLStateLease)
		w.forge(t, func(c *schemas.Claim) { c.Target = one[uint32](t, db, "select 'lapse.batch'::regclass::oid") }, 10, schemas.SQLStateLease)
		w.forge(t, func(c *schemas.Claim) { c.Run = uuid.New() }, 10, schemas.SQLStateLease)
		w.forge(t, func(c *schemas.Claim) { c.HoldVersion++ }, 10, schemas.SQLStateGate)
		w.forge(t, func(c *schemas.Claim) { c.XID-- }, 10, schemas.SQLStateClaim)
		w.forge(t, func(c *schemas.Claim) { c.DatabaseOID++ }, 10, schemas.SQLStateClaim)
		w.forge(t, func(c *schemas.Claim) {}, 11, schemas.SQLStateLimit)
		w.forge(t, func(c *schemas.Claim) {}, 10, "")
		if got := one[string](t, db, "select count(*) filter (where id <= 30) || ' due, ' || count(*) filter (where id > 30) || ' live' from sessions"); got != "20 due, 30 live" {
			t.Errorf("%s rows are left, want 20 due, 30 live", got)
		}
		for _, c := range ledger(t, db) {
			if c.claim.Verify(testKey, c.mac) {
				t.Error("a MAC that was made without the key verifies")
			}
		}
	})
}

// forge calls the policy's deletion function. want is the SQLSTATE of the refusal, "" for none.
func (w *work) forge(t *testing.T, change func(*schemas.Claim), limit int, want string) {
	t.Helper()
	err := w.callForged(t, functions.DeleteFunction(w.policy.ID, w.policy.Version), change, limit)
	if got := schemas.StateOf(err); got != want {
		t.Errorf("the forged claim gave %q, want %q (%v)", got, want, err)
	}
}

// callForged calls a function with a claim of the caller's own and no key, and commits: all that a stolen login needs.
func (w *work) callForged(t *testing.T, function string, change func(*schemas.Claim), limit int) error {
	t.Helper()
	ctx := t.Context()
	tx, err := w.Batches.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	system := ""
	c := schemas.Claim{
		Batch: uuid.New(), PolicyID: w.policy.ID, Policy: w.policy.Name, PolicyVersion: w.policy.Version, Run: w.run.ID, Cutoff: w.run.Cutoff,
		HoldVersion: w.policy.HoldVersion, Target: w.a.Leaf, Cascades: w.a.Cascades,
	}
	err = tx.QueryRow(ctx, `
		select c.system_identifier::text, d.oid, coalesce((select max(h.number) from lapse.history h), 0),
		       ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int, pg_current_xact_id(), now()
		  from pg_control_system() c, pg_database d
		 where d.datname = current_database()`).Scan(&system, &c.DatabaseOID, &c.History, &c.Timeline, &c.XID, &c.StartedAt)
	if err == nil {
		c.SystemIdentifier, err = strconv.ParseUint(system, 10, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(&c)
	_, err = tx.Exec(ctx, "select "+function+`(row($1::text, $2::oid, $3::int, $4::int, $5::xid8, $6::timestamptz, $7::uuid, $8::int, $9::text, $10::int,
		$11::uuid, $12::timestamptz, $13::bigint, $14::oid, $15::oid[], $16::bytea)::lapse.claim, $17::bytea,
		row($18::bigint, $19::bigint, $20::text, $21::int, null, false, false, null, null)::lapse.work)`,
		system, c.DatabaseOID, c.History, c.Timeline, c.XID, c.StartedAt, c.Batch, c.PolicyID, c.Policy, c.PolicyVersion, c.Run, c.Cutoff,
		c.HoldVersion, c.Target, c.Cascades, c.Functions[:], c.MAC(schemas.Key("stolen nothing")), w.a.Shard, w.a.Term, w.holder+"/0", limit)
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func TestTheExecutorsLoginMayNothingButCallTheFunctions(t *testing.T) {
	t.Parallel()
	const denied = "42501"
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		if _, err := w.batch(t, 5); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"select * from sessions", "delete from sessions", "update sessions set note = ''", "truncate sessions",
			"insert into sessions values (99)", "select * from sessions for update", "lock table sessions in row exclusive mode",
			"drop table sessions", "alter table sessions add column x int",
			"update lapse.gate set state = 'armed'", "delete from lapse.gate", "select * from lapse.gate for share",
			"insert into lapse.policy select * from lapse.policy", "delete from lapse.policy_state",
			"insert into lapse.batch select * from lapse.batch", "update lapse.batch set mac = ''", "delete from lapse.batch",
			"truncate lapse.batch", "insert into lapse.batch_result select * from lapse.batch_result", "delete from lapse.batch_result",
			"update lapse.installation set audit_required = false", "insert into lapse.heartbeat default values", "select lapse.beat(gen_random_uuid(), 1, 1, now(), null)",
			"insert into lapse.history (number, timeline, system_identifier, reason) values (2, 1, '1', '')",
			"select lapse.record_publications()", "select lapse.begin_publications()", "select lapse.record_published('{}')",
			"delete from lapse.published", "delete from lapse.publication",
			"update lapse.shard set cursor = null", "update lapse.shard set done = false", "update lapse.shard set leaf = 0",
			"update lapse.shard set cutoff = 'infinity'", "set role lapse_owner", "set role " + appRole,
		} {
			if _, err := w.Batches.Exec(t.Context(), "set search_path = public; "+statement); schemas.StateOf(err) != denied {
				t.Errorf("%s: %v, want permission denied", statement, err)
			}
		}
	})
}
