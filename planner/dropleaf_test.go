package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// cases makes a table of ranges of another column than the one that its rows expire by, all of them over, with fifty due rows each.
func cases(w *world, table string, leaves int) {
	w.t.Helper()
	w.do(`create table ` + table + ` (id bigint, made timestamptz, at timestamptz, note text, primary key (id, made)) partition by range (made)`)
	for i := range leaves {
		w.do(fmt.Sprintf(`do $$ begin execute format('create table %[1]s_%02[2]d partition of %[1]s for values from (%%L) to (%%L)',
			date_trunc('day', now()) - interval '%[3]d days', date_trunc('day', now()) - interval '%[4]d days'); end $$`, table, i, 10*i+50, 10*i+40))
	}
	w.do(fmt.Sprintf(`insert into %s (id, made, at) select n, date_trunc('day', now()) - (40.5 + n %% 10 + 10 * i) * interval '1 day', now() - interval '40 days'
		from generate_series(1, 50) n, generate_series(0, %d) i`, table, leaves-1))
	w.do(`analyze ` + table)
}

// kept is a partition in a state in which it is not dropped: it is left to row deletion and says why, or the call is refused.
type kept struct {
	name, why, state string
	before           func(w *world, leaf string, oid uint32)
	after            func(w *world)
}

func keptLeaves() []kept {
	sql := func(format string) func(*world, string, uint32) {
		return func(w *world, leaf string, _ uint32) { w.do(fmt.Sprintf(format, leaf)) }
	}
	var other *pgx.Conn
	open := func(statement string) func(*world, string, uint32) {
		return func(w *world, leaf string, _ uint32) {
			other = w.db.ConnectAs(w.t, w.app)
			must(w.t, runSQL(other, `begin`))
			must(w.t, runSQL(other, fmt.Sprintf(statement, leaf)))
		}
	}
	end := func(*world) { _ = other.Close(context.Background()) }
	const notDue = "a row of it is not due, or has to stay"
	return []kept{
		{name: "with a row that is not due", why: notDue, before: sql(`update shop.%s set at = now() where id = 7`)},
		{name: "with a row that never expires", why: notDue, before: sql(`update shop.%s set at = null where id = 7`)},
		{name: "with a row of minus infinity", why: notDue, before: sql(`update shop.%s set at = '-infinity' where id = 7`)},
		{name: "with a row that has to stay", why: notDue, before: func(w *world, leaf string, oid uint32) {
			must(w.t, w.script(fmt.Sprintf(`create or replace function lapse.quarantined(policy int, version int, leaf oid) returns text language plpgsql stable
				set search_path = pg_catalog, pg_temp as $$ begin return case when leaf = %d then 't.id = 7' end; end $$`, oid)))
		}},
		{name: "without rows", why: "it is empty", before: sql(`delete from shop.%s`)},
		{name: "that a view reads", why: "something depends on it, a view for instance", before: sql(`create view reader as select from shop.%s`)},
		{name: "of another owner", why: "it belongs to another role than the table", before: func(w *world, leaf string, _ uint32) {
			must(w.t, w.script(`grant `+w.db.NewRole(w.t, "other")+` to `+w.deleter()+`; alter table shop.`+leaf+` owner to `+w.db.Name+`_other`))
		}},
		{name: "that is detached", state: schemas.SQLStateTarget, before: sql(`alter table shop.t detach partition shop.%s`)},
		{name: "that is dropped", state: schemas.SQLStateTarget, before: sql(`drop table shop.%s`)},
		{name: "that is renamed into another's place", state: schemas.SQLStateTarget, before: func(w *world, leaf string, _ uint32) {
			w.do(`alter table shop.t detach partition shop.` + leaf)
			w.do(`create table shop.swapped (like shop.` + leaf + `)`)
		}},
		{name: "that somebody has written to", state: schemas.SQLStateLockNotAvailable, before: open(`insert into shop.%[1]s select 1000, made, now() from shop.%[1]s limit 1`), after: end},
		{name: "that somebody reads", state: schemas.SQLStateLockNotAvailable, before: open(`select from shop.%s`), after: end},
		{name: "of a table that somebody reads", state: schemas.SQLStateLockNotAvailable, before: open(`select '%s' from shop.t where made > now()`), after: end},
		{name: "with a trigger that is not trusted", state: schemas.SQLStateTriggers, before: func(w *world, leaf string, _ uint32) { w.trigger(leaf, "after delete", "row") }},
		{name: "with the owner's function in an index", state: schemas.SQLStateTriggers, before: func(w *world, leaf string, _ uint32) {
			w.do(`create function mine(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
			w.do(`create index on ` + leaf + ` (mine(id))`)
		}},
	}
}

func TestAPartitionIsNotDroppedWhole(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		all := keptLeaves()
		w := newWorld(t, db)
		cases(w, "t", len(all))
		p := w.armed(policyText("shop.t", "at", "30 days", dropping))
		r := w.open(&p)
		for i, c := range all {
			t.Run(c.name, func(t *testing.T) {
				w.t = t
				leaf := fmt.Sprintf("t_%02d", i)
				b, before := w.leaseOf(p, r, leaf), value[int](w, `select count(*) from t`)
				c.before(w, leaf, b.Claim.Target)
				left := value[int](w, `select count(*) from t`)
				got, err := w.drop(b, nil)
				if c.state != "" {
					wantState(t, err, c.state)
				} else if must(t, err); got != (dropped{false, 0, c.why}) {
					t.Errorf("got %+v, want %q", got, c.why)
				}
				if n := value[int](w, `select count(*) from t`); n != left {
					t.Errorf("%d rows are left, want %d of %d", n, left, before)
				}
				if c.after != nil {
					c.after(w)
				}
				must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where not done and leaf <> $1`, b.Claim.Target))
			})
		}
		w.t = t
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.dropped`); n != 0 {
			t.Errorf("the ledger has %d partitions", n)
		}
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.shard where by_rows`); n != 7 {
			t.Errorf("%d shards are left to row deletion, want seven", n)
		}
	})
}

// Between two calls everything is as it was: sessions that waited for our lock go on, and a partition is counted again when a
// writer of it has ended.
func TestAPartitionIsDroppedWholeOnceItsReadersAreGone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		cases(w, "t", 2)
		p := w.armed(policyText("shop.t", "at", "30 days", dropping))
		r := w.open(&p)
		b := w.leaseOf(p, r, "t_00")
		reader, writer := db.ConnectAs(t, w.app), db.ConnectAs(t, w.app)
		must(t, runSQL(reader, `begin; select count(*) from shop.t`))
		_, err := w.drop(b, nil)
		wantState(t, err, schemas.SQLStateLockNotAvailable)
		must(t, runSQL(reader, `commit`))

		// What is inserted while the partition is counted waits, and finds it gone.
		ctx := t.Context()
		tx, err := w.exec.Begin(ctx)
		must(t, err)
		got, err := w.dropIn(tx, b, nil)
		must(t, err)
		if got != (dropped{true, 50, ""}) {
			t.Fatalf("got %+v", got)
		}
		inserted := make(chan error, 1)
		go func() {
			_, err := writer.Exec(context.WithoutCancel(ctx), `insert into shop.t select 1000, date_trunc('day', now()) - interval '45 days', now()`)
			inserted <- err
		}()
		for waits := false; !waits; {
			waits = valueOn[bool](t, w.admin, `select exists (select from pg_locks where not granted and relation = $1)`, p.TableOID)
		}
		must(t, tx.Commit(ctx))
		if err := <-inserted; schemas.StateOf(err) != "23514" {
			t.Errorf("the insert ended with %v, want that there is no partition for it", err)
		}
	})
}

// A foreign key that refers to a partitioned table keeps a partition only while a row refers to one of it.
func TestAPartitionIsDroppedWholeIfNoRowRefersToIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		cases(w, "t", 3)
		w.do(`create table child (id bigint, made timestamptz, foreign key (id, made) references t on delete cascade)`)
		w.do(`create index on child (id, made)`)
		w.do(`create table strict (n int, id bigint, made timestamptz, foreign key (id, made) references t)`)
		w.do(`insert into child select id, made from t_00 where id = 9`)
		w.do(`insert into strict select 1, id, made from t_01 where id = 9`)
		p := w.armed(policyText("shop.t", "at", "30 days", dropping))
		r := w.open(&p)
		const refer = "rows refer to rows of it"
		for leaf, want := range map[string]dropped{"t_00": {false, 0, refer}, "t_01": {false, 0, refer}, "t_02": {true, 50, ""}} {
			got, err := w.drop(w.leaseOf(p, r, leaf), nil)
			must(t, err)
			if got != want {
				t.Errorf("%s: got %+v, want %+v", leaf, got, want)
			}
			must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where not done`))
		}
		if n := value[int](w, `select count(*) from t`); n != 100 {
			t.Errorf("%d rows are left, want 100", n)
		}
		// Nothing of a detached partition is left behind.
		if value[bool](w, `select to_regclass('t_02') is not null`) {
			t.Error("the partition is detached and there")
		}
		if got := strings.Join([]string{fmt.Sprint(value[int](w, `select count(*) from child`)), fmt.Sprint(value[int](w, `select count(*) from strict`))}, " "); got != "1 1" {
			t.Errorf("the tables that refer have %s rows", got)
		}
	})
}

// Bounds decide whether a partition may go: nothing new must belong into it.
func TestAPartitionIsDroppedWholeOnlyIfItsRangeIsOver(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		const late, open = "its bounds do not say that nothing new belongs into it", "it is a default partition, or part of one"
		for table, c := range map[string]struct {
			ddl  []string
			want map[string]string
		}{
			"l": {[]string{
				`create table l (id bigint, at timestamptz, region text, primary key (id, region)) partition by list (region)`,
				`create table l_eu partition of l for values in ('eu')`, `insert into l values (1, now() - interval '1 year', 'eu')`,
			}, map[string]string{"l_eu": late}},
			"h": {[]string{
				`create table h (id bigint primary key, at timestamptz) partition by hash (id)`,
				`create table h_0 partition of h for values with (modulus 1, remainder 0)`, `insert into h values (1, now() - interval '1 year')`,
			}, map[string]string{"h_0": late}},
			"n": {
				[]string{
					`create table n (id bigint primary key, at timestamptz) partition by range (id)`,
					`create table n_1 partition of n for values from (minvalue) to (9)`, `create table n_2 partition of n for values from (9) to (100)`,
					`create table n_3 partition of n for values from (100) to (maxvalue)`,
					`insert into n select i, now() - interval '1 year' from generate_series(1, 20) i`, `analyze n_1, n_2, n_3`,
				},
				map[string]string{"n_1": "", "n_2": late, "n_3": late},
			},
			"f": {[]string{
				`create table f (id bigint, made date, at timestamptz, primary key (id, made)) partition by range (made)`,
				`do $$ begin execute format('create table f_1 partition of f for values from (minvalue) to (%L)', current_date + 2); end $$`,
				`insert into f values (1, current_date - 400, now() - interval '1 year')`, `analyze f`,
			}, map[string]string{"f_1": late}},
			"s": {
				[]string{
					`create table s (id bigint, made timestamp, at timestamptz, primary key (id, made)) partition by range (made)`,
					`create table s_1 partition of s for values from ('2020-01-01') to ('2021-01-01') partition by hash (id)`,
					`create table s_1_0 partition of s_1 for values with (modulus 2, remainder 0)`, `create table s_1_1 partition of s_1 for values with (modulus 2, remainder 1)`,
					`create table s_2 partition of s default partition by range (made)`, `create table s_2_1 partition of s_2 for values from ('2022-01-01') to ('2023-01-01')`,
					`insert into s select i, timestamp '2020-06-01', now() - interval '1 year' from generate_series(1, 40) i`,
					`insert into s select i, timestamp '2022-06-01', now() - interval '1 year' from generate_series(1, 40) i`, `analyze s_1_0, s_1_1, s_2_1`,
				},
				map[string]string{"s_1_0": "", "s_1_1": "", "s_2_1": open},
			},
			"m": {[]string{
				`create table m (id bigint, made timestamptz, at timestamptz, primary key (id, made)) partition by range (made, id)`,
				`create table m_1 partition of m for values from ('2020-01-01', 1) to ('2021-01-01 12:00:00.5+05', 7)`, `insert into m values (1, '2020-06-01', now() - interval '1 year')`,
				`analyze m`,
			}, map[string]string{"m_1": ""}},
			"e": {[]string{
				`create table e (id bigint, at timestamptz, primary key (id, at)) partition by range (at)`,
				`create table e_1 partition of e for values from (minvalue) to (maxvalue)`, `insert into e values (1, now() - interval '1 year')`,
			}, map[string]string{"e_1": late}},
		} {
			for _, sql := range c.ddl {
				w.do(sql)
			}
			w.apply(fmt.Sprintf("policies:\n  - {name: p-%[1]s, table: shop.%[1]s, expire: {column: at, after: 30 days}, action: drop_partition, state: armed}\n", table))
			p := w.named(schemas.PolicyName("p-" + table))
			w.arm(p.ID)
			p = w.named(p.Name)
			r := w.open(&p)
			for leaf, want := range c.want {
				got, err := w.drop(w.leaseOf(p, r, leaf), nil)
				must(t, err)
				if got.Why != want || got.Dropped != (want == "") {
					t.Errorf("%s: got %+v, want %q", leaf, got, want)
				}
				must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where not done`))
			}
		}
	})
}

// The policy's limits hold for partitions as they do for rows.
func TestAPartitionThatExceedsTheRunsLimitIsNotDroppedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)))
	cases(w, "t", 3)
	p := w.armed(policyText("shop.t", "at", "30 days", dropping, "    max_rows_per_run: 110"))
	r := w.open(&p)
	for i, want := range []bool{true, true, false} {
		b := w.lease(p, r)
		got, err := w.drop(b, nil)
		must(t, err)
		if got.Dropped != want || !want && got.Why != "it has more rows than max_rows_per_run leaves of this run" {
			t.Errorf("partition %d: got %+v", i, got)
		}
	}
	if n := value[int](w, `select count(*) from t`); n != 50 {
		t.Errorf("%d rows are left", n)
	}
}

// A stolen login can drop what would go anyway, and nothing else, however it calls.
func TestAPartitionIsDroppedWholeForNobodyWhoseClaimIsForged(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		cases(w, "t", 2)
		cases(w, "other", 1)
		parted(w)
		w.armed(`policies:
  - {name: p, table: shop.t, expire: {column: at, after: 30 days}, action: drop_partition, state: armed}
  - {name: q, table: shop.other, expire: {column: at, after: 30 days}, state: armed}
  - {name: r, table: shop.parts, expire: {column: at, after: 30 days}, action: drop_partition, state: armed}`)
		p, q, r := w.named("p"), w.named("q"), w.named("r")
		w.stolen()
		b := w.leaseOf(p, w.open(&p), "t_00")
		for _, c := range refusals() {
			if c.before != nil {
				continue
			}
			_, err := w.drop(b, c.change)
			if schemas.StateOf(err) != c.state {
				t.Errorf("%s: got %v, want SQLSTATE %s", c.name, err, c.state)
			}
		}
		elsewhere := w.leaseOf(q, w.open(&q), "other_00")
		elsewhere.Policy = p
		_, err := w.drop(elsewhere, nil)
		wantState(t, err, schemas.SQLStateGate)
		_, err = w.drop(elsewhere, func(b *batch) { b.Claim.PolicyID, b.Claim.PolicyVersion = p.ID, p.Version })
		wantState(t, err, schemas.SQLStateLease)
		run2 := w.open(&r)
		for _, leaf := range []string{"parts_3", "parts_4", "parts_rest"} {
			must(t, runSQL(w.admin, `update lapse.shard set lease_until = null, holder = null where policy_id = $1 and holder = 'nobody'`, r.ID))
			if got, err := w.drop(w.leaseOf(r, run2, leaf), nil); err != nil || got.Dropped {
				t.Errorf("%s: %+v, %v", leaf, got, err)
			}
		}
		// A session that waits behind a waiting lock waits no longer than the function says, whatever the session says.
		must(t, runSQL(w.exec, `set lock_timeout = 0`))
		must(t, runSQL(w.exec, `set statement_timeout = '60s'`))
		reader := db.ConnectAs(t, w.app)
		must(t, runSQL(reader, `begin; select from shop.t`))
		_, err = w.drop(b, nil)
		wantState(t, err, schemas.SQLStateLockNotAvailable)
		must(t, runSQL(reader, `commit`))
		for table, rows := range map[string]int{"t": 100, "other": 50, "parts": 300} {
			if n := value[int](w, `select count(*) from `+table); n != rows {
				t.Errorf("%s has %d rows, want %d", table, n, rows)
			}
		}
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.dropped`); n != 0 {
			t.Errorf("the ledger has %d partitions", n)
		}
		got, err := w.drop(b, nil)
		if must(t, err); got != (dropped{true, 50, ""}) {
			t.Errorf("the form is right, and yet: %+v", got)
		}
	})
}
