package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

const sessions = `create table sessions (id bigint primary key, last_seen timestamptz not null, note text)`

// fill puts rows 1…due into the past and as many into the present.
func (w *world) fill(table string, due int) {
	w.t.Helper()
	w.do(fmt.Sprintf(`insert into %s (id, last_seen)
		select n, now() - interval '40 days' + n * interval '1 second' from generate_series(1, %d) n
		union all
		select %d + n, now() - interval '20 days' from generate_series(1, %d) n`, table, due, due, due))
}

func TestDueRowsGoAndTheOthersStay(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.fill("sessions", 1000)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		if total := w.deleteAll(p, r, 300); total.Deleted != 1000 || total.Picked != 1000 {
			t.Errorf("got %+v, want 1000 picked and deleted", total)
		}
		if left := value[int](w, `select count(*) from sessions where last_seen < now() - interval '30 days'`); left != 0 {
			t.Errorf("%d due rows are left", left)
		}
		if left := value[int](w, `select count(*) from sessions`); left != 1000 {
			t.Errorf("%d rows are left, want 1000", left)
		}
		// 300, 300, 300, 100 and the residual pass, which finds nothing and writes nothing.
		var batches, rows, results int
		must(t, w.admin.QueryRow(t.Context(), `
			select count(*), sum(r.deleted), count(r.batch) from lapse.batch b left join lapse.batch_result r using (batch)`).
			Scan(&batches, &rows, &results))
		if batches != 4 || rows != 1000 || results != 4 {
			t.Errorf("the ledger has %d batches, %d results, %d rows; want 4, 4, 1000", batches, results, rows)
		}
	})
}

func TestTheCursorMovesWithEveryBatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		b.Limit = 4
		fourth := valueOn[time.Time](t, w.admin, `select last_seen from shop.sessions order by last_seen offset 3 limit 1`)
		_, err := w.call(b, nil)
		must(t, err)
		cursor := valueOn[[]string](t, w.exec, `select cursor from lapse.shard where id = $1`, b.Shard)
		if len(cursor) != 1 || !valueOn[bool](t, w.admin, `select $1::text::timestamptz = $2`, cursor[0], fourth) {
			t.Errorf("after four rows the cursor is %v, want the fourth row's instant", cursor)
		}
	})
}

// refusal is a way to call a deletion function that ends with nothing deleted. Before changes the database, change the
// call; table is the policy's.
type refusal struct {
	name   string
	state  string
	before func(w *world, b *batch, table string)
	change func(b *batch)
}

func refusals() []refusal {
	gate := func(set string) func(*world, *batch, string) {
		return func(w *world, b *batch, _ string) {
			must(w.t, runSQL(w.admin, `update lapse.gate set `+set+` where policy_id = $1`, b.Policy.ID))
		}
	}
	shard := func(set string) func(*world, *batch, string) {
		return func(w *world, b *batch, _ string) {
			must(w.t, runSQL(w.admin, `update lapse.shard set `+set+` where id = $1`, b.Shard))
		}
	}
	isolation := func(level pgx.TxIsoLevel) func(*world, *batch, string) {
		return func(_ *world, b *batch, _ string) { b.Isolation = level }
	}
	sql := func(format string) func(*world, *batch, string) {
		return func(w *world, _ *batch, table string) { w.do(fmt.Sprintf(format, table)) }
	}
	trigger := func(when, level string) func(*world, *batch, string) {
		return func(w *world, _ *batch, table string) { w.trigger(table, when, level) }
	}
	return []refusal{
		{name: "under repeatable read", state: schemas.SQLStateIsolation, before: isolation(pgx.RepeatableRead)},
		{name: "under serializable", state: schemas.SQLStateIsolation, before: isolation(pgx.Serializable)},
		{name: "by a paused policy", state: schemas.SQLStateGate, before: gate(`state = 'paused'`)},
		{name: "by an observing policy", state: schemas.SQLStateGate, before: gate(`state = 'observing'`)},
		{name: "by an arming policy", state: schemas.SQLStateGate, before: gate(`state = 'arming'`)},
		{name: "by a dropped policy", state: schemas.SQLStateGate, before: gate(`state = 'dropped'`)},
		{name: "with another hold version in force", state: schemas.SQLStateGate, before: gate(`hold_version = 1`)},
		{name: "with another hold version claimed", state: schemas.SQLStateGate, change: func(b *batch) { b.Claim.HoldVersion = 7 }},
		{name: "with a cascade too many", state: schemas.SQLStateGate, change: func(b *batch) { b.Claim.Cascades = []uint32{b.Claim.Target} }},
		{name: "with null for cascades", state: schemas.SQLStateGate, change: func(b *batch) { b.Claim.Cascades = nil }},
		{name: "over a foreign key that is not claimed", state: schemas.SQLStateGate, before: sql(`create table clicks (s bigint references %s on delete cascade)`)},
		{name: "with a cutoff to come", state: schemas.SQLStateCutoff, change: func(b *batch) { b.Claim.Cutoff = time.Now().Add(time.Hour) }},
		{name: "with another cutoff", state: schemas.SQLStateLease, change: func(b *batch) { b.Claim.Cutoff = b.Claim.Cutoff.Add(-time.Microsecond) }},
		{name: "of no rows", state: schemas.SQLStateLimit, change: func(b *batch) { b.Limit = 0 }},
		{name: "of less than no rows", state: schemas.SQLStateLimit, change: func(b *batch) { b.Limit = -1 }},
		{name: "of more rows than the policy allows", state: schemas.SQLStateLimit, change: func(b *batch) { b.Limit = b.Policy.Batch + 1 }},
		{name: "on a relation that is gone", state: schemas.SQLStateTarget, before: sql(`drop table %s`)},
		{name: "on another relation than the shard's", state: schemas.SQLStateLease, change: func(b *batch) { b.Claim.Target = 4_000_000_000 }},
		{name: "by another policy's claim", state: schemas.SQLStateGate, change: func(b *batch) { b.Claim.PolicyID++ }},
		{name: "by another version's claim", state: schemas.SQLStateGate, change: func(b *batch) { b.Claim.PolicyVersion++ }},
		{name: "while every deletion is paused", state: schemas.SQLStateHalted, before: func(w *world, _ *batch, _ string) {
			must(w.t, runSQL(w.admin, `insert into lapse.halt (halted, reason) values (true, '')`))
			w.t.(*testing.T).Cleanup(func() { must(w.t, runSQL(w.admin, `insert into lapse.halt (halted, reason) values (false, '')`)) })
		}},
		{name: "without a slot", state: schemas.SQLStateNoSlot, before: audited(`update lapse.installation set slot = 'nowhere'; create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate')`)},
		{name: "with another database's slot", state: schemas.SQLStateNoSlot, before: func(w *world, b *batch, table string) {
			audited(`create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate')`)(w, b, table)
			must(w.t, w.script(fmt.Sprintf(`update lapse.installation set slot = '%s_physical'`, w.db.Name)))
			must(w.t, runSQL(w.admin, `select pg_create_physical_replication_slot($1)`, w.db.Name+"_physical"))
			w.t.(*testing.T).Cleanup(func() { must(w.t, runSQL(w.admin, `select pg_drop_replication_slot($1)`, w.db.Name+"_physical")) })
		}},
		{name: "of a shard that was put aside", state: schemas.SQLStateLease, before: shard(`aside = true`)},
		{name: "of another policy's shard", state: schemas.SQLStateLease, before: shard(`policy_id = policy_id + 1`)},
		{name: "without a holder", state: schemas.SQLStateLease, before: shard(`holder = null`)},
		{name: "on a table that was renamed", state: schemas.SQLStateTarget, before: sql(`alter table %s rename to visits`)},
		{name: "with a claim of another transaction", state: schemas.SQLStateClaim, change: func(b *batch) { b.Claim.XID++ }},
		{name: "begun at another time", state: schemas.SQLStateClaim, change: func(b *batch) { b.Claim.StartedAt = b.Claim.StartedAt.Add(time.Microsecond) }},
		{name: "in another database", state: schemas.SQLStateClaim, change: func(b *batch) { b.Claim.DatabaseOID++ }},
		{name: "with a former term", state: schemas.SQLStateLease, change: func(b *batch) { b.Term-- }},
		{name: "by somebody else", state: schemas.SQLStateLease, change: func(b *batch) { b.Holder = "another" }},
		{name: "for another run", state: schemas.SQLStateLease, change: func(b *batch) { b.Claim.Run = uuid.New() }},
		{name: "for no shard", state: schemas.SQLStateLease, change: func(b *batch) { b.Shard = -1 }},
		{name: "with an expired lease", state: schemas.SQLStateLease, before: shard(`lease_until = clock_timestamp()`)},
		{name: "of a shard that is done", state: schemas.SQLStateLease, before: shard(`done = true`)},
		{name: "beside a trigger", state: schemas.SQLStateTriggers, before: trigger("after delete", "row")},
		{name: "beside a statement trigger", state: schemas.SQLStateTriggers, before: trigger("before delete", "statement")},
		{name: "by a column of another type", state: schemas.SQLStateColumns, before: sql(`alter table %s alter last_seen type timestamp using last_seen at time zone 'UTC'`)},
		{name: "by a column that was made again", state: schemas.SQLStateColumns, before: sql(`alter table %s drop last_seen, add last_seen timestamptz`)},
		{name: "by a key that was made again", state: schemas.SQLStateColumns, before: sql(`alter table %s drop id, add id bigserial primary key`)},
		{name: "of a table that is not published", state: schemas.SQLStateUnseen, before: audited(`create publication %[2]s with (publish = 'delete, truncate')`)},
		{name: "of a table without replica identity", state: schemas.SQLStateUnseen, before: audited(`create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate'); alter table shop.%[1]s replica identity nothing`)},
		{name: "of a table whose every column is its identity", state: schemas.SQLStateUnseen, before: audited(`create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate'); alter table shop.%[1]s replica identity full`)},
		{name: "of a child that is not published", state: schemas.SQLStateUnseen, before: func(w *world, b *batch, table string) {
			w.do(`create table unpublished (id int primary key, s bigint references ` + table + ` on delete cascade)`)
			audited(`create publication %[2]s for table shop.%[1]s with (publish = 'delete, truncate')`)(w, b, table)
		}},
		{name: "beside the owner's function in an index", state: schemas.SQLStateTriggers, before: func(w *world, _ *batch, table string) {
			w.do(`create or replace function mine(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
			w.do(`create index on ` + table + ` (mine(id))`)
		}},
		{name: "beside the owner's function in an index's condition", state: schemas.SQLStateTriggers, before: func(w *world, _ *batch, table string) {
			w.do(`create or replace function mine(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
			w.do(`create index on ` + table + ` (id) where mine(1) = 1`)
		}},
		{name: "beside the owner's function in a check of what is set null", state: schemas.SQLStateTriggers, before: func(w *world, _ *batch, table string) {
			w.do(`create or replace function mine(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
			w.do(`create table checked (id int primary key, s bigint references ` + table + ` on delete set null, check (mine(s) is null or s > 0))`)
		}},
		{name: "beside a rule", state: schemas.SQLStateTriggers, before: sql(`create rule r as on delete to %s do also select 1`)},
	}
}

// audited requires the audit for one batch, with a publication for it. No two publications can have one name, so that the
// one of the refusal before goes.
func audited(format string) func(*world, *batch, string) {
	return func(w *world, _ *batch, table string) {
		const publication = "lapse_deletes"
		must(w.t, runSQL(w.admin, `drop publication if exists `+publication+`, lapse_changes, lapse_ledger, lapse_catalog`))
		must(w.t, runSQL(w.admin, `update lapse.installation set audit_required = true`))
		must(w.t, runSQL(w.admin, `
			select pg_create_logical_replication_slot($1::name, 'pgoutput')
			 where not exists (select from pg_replication_slots where slot_name = $1::name)`, w.db.Name))
		must(w.t, runSQL(w.admin, `update lapse.installation set slot = $1`, w.db.Name))
		must(w.t, w.script(fmt.Sprintf(format, table, publication)))
		must(w.t, w.script(pgtest.PublishRest))
		must(w.t, w.script(pgtest.Beats("clock_timestamp() + n * interval '1 minute'")))
		w.t.(*testing.T).Cleanup(func() { must(w.t, runSQL(w.admin, `update lapse.installation set audit_required = false`)) })
	}
}

// trigger makes a trigger that does nothing.
func (w *world) trigger(table, when, level string) {
	w.t.Helper()
	w.do(`create or replace function nothing() returns trigger language plpgsql as 'begin return coalesce(old, new); end'`)
	w.do(fmt.Sprintf(`create trigger audit %s on %s for each %s execute function nothing()`, when, table, level))
}

func TestADeletionIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		all := refusals()
		w := newWorld(t, db)
		file := "policies:\n"
		for i := range all {
			table := fmt.Sprintf("sessions_%02d", i)
			w.do(fmt.Sprintf(`create table %s (id bigint primary key, last_seen timestamptz not null)`, table))
			w.fill(table, 10)
			file += fmt.Sprintf("  - {name: p%02d, table: shop.%s, expire: {column: last_seen, after: 30 days}, state: armed}\n", i, table)
		}
		_ = w.armed(file)
		for i, p := range w.inForce() {
			t.Run(all[i].name, func(t *testing.T) {
				w.t = t
				b := w.lease(p, w.open(&p))
				if all[i].before != nil {
					all[i].before(w, b, fmt.Sprintf("sessions_%02d", i))
				}
				_, err := w.call(b, all[i].change)
				wantState(t, err, all[i].state)
				if n := valueOn[int](t, w.admin, `select count(*) from lapse.batch where policy_id = $1`, p.ID); n != 0 {
					t.Errorf("%d ledger rows stayed", n)
				}
				if c := all[i].name; c != "on a relation that is gone" && c != "on a table that was renamed" {
					w.wantRows(fmt.Sprintf("sessions_%02d", i), 20)
				}
				if n := valueOn[int64](t, w.admin, `select picked from lapse.shard where id = $1`, b.Shard); n != 0 {
					t.Errorf("the shard moved by %d rows", n)
				}
			})
		}
	})
}
