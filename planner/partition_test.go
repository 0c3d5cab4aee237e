package planner

import (
	"fmt"
	"slices"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

const events = `create table events (id bigint, region text, last_seen timestamptz not null, primary key (id, region)) partition by list (region)`

// partitioned makes a partitioned table of three leaves, one of them below a partition of its own.
func partitioned(w *world) {
	w.t.Helper()
	w.do(events)
	w.do(`create table events_eu partition of events for values in ('eu')`)
	w.do(`create table events_us partition of events for values in ('us')`)
	w.do(`create table events_rest partition of events default partition by range (id)`)
	w.do(`create table events_rest_all partition of events_rest default`)
}

func (w *world) oid(table string) uint32 {
	w.t.Helper()
	return value[uint32](w, `select $1::text::regclass::oid`, table)
}

// Equal ctids in two partitions are two rows: row n is due in one leaf and lives in the other.
func TestEqualRowAddressesInTwoPartitionsAreTwoRows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		for i, region := range []string{"eu", "us", "asia"} {
			w.do(`insert into events select n, $1, case when n % 3 = $2 then now() - interval '40 days' else now() end from generate_series(1, 300) n`, region, i)
		}
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		if shards := valueOn[[]uint32](t, w.exec, `select array_agg(leaf order by leaf) from lapse.shard`); !slices.Equal(shards,
			[]uint32{w.oid("events_eu"), w.oid("events_us"), w.oid("events_rest_all")}) {
			t.Errorf("the run's shards are %v, want one for each leaf", shards)
		}
		if total := w.deleteAll(p, r, 70); total.Deleted != 300 {
			t.Errorf("deleted %d rows, want 300", total.Deleted)
		}
		if n := value[int](w, `select count(*) from events`); n != 600 {
			t.Errorf("%d rows are left, want the 600 that were not due", n)
		}
		if n := value[int](w, `select count(*) from events where last_seen < now() - interval '30 days'`); n != 0 {
			t.Errorf("%d due rows are left", n)
		}
	})
}

func TestARelationThatIsNotTheTablesLeafIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		partitioned(w)
		w.do(`create table detached partition of events for values in ('mars')`)
		w.do(`insert into detached values (1, 'mars', now() - interval '1 year')`)
		w.fill("sessions", 1)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		for name, target := range map[string]uint32{
			"another table":    w.oid("sessions"),
			"the root":         w.oid("events"),
			"an inner node":    w.oid("events_rest"),
			"an index":         w.oid("events_eu_pkey"),
			"a system catalog": valueOn[uint32](t, w.admin, `select 'pg_class'::regclass::oid`),
		} {
			b := w.lease(p, r)
			_, err := w.call(b, func(b *batch) { b.Claim.Target = target })
			wantState(t, err, schemas.SQLStateLease) // the shard is of another leaf
			// Where the shard says so too, the function itself must see it.
			must(t, runSQL(w.admin, `update lapse.shard set leaf = $2 where id = $1`, b.Shard, target))
			_, err = w.call(b, func(b *batch) { b.Claim.Target = target })
			if want := map[string]string{"an index": "42809", "a system catalog": "42501"}[name]; want != "" {
				wantState(t, err, want)
			} else {
				wantState(t, err, schemas.SQLStateTarget)
			}
			must(t, runSQL(w.admin, `update lapse.shard set leaf = $2 where id = $1`, b.Shard, b.Claim.Target))
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = leaf <> $1`, w.oid("detached")))
		b := w.lease(p, r)
		w.do(`alter table events detach partition detached`)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateTarget)
	})
}

// Up to PostgreSQL 14 the copy of a root's trigger in a partition counts as internal.
func TestATriggerOnThePartitionedRootIsSeenAtTheLeaf(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		w.do(`insert into events values (1, 'eu', now() - interval '1 year')`)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		w.trigger("events", "after delete", "row")
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateTriggers)

		w.do(`drop trigger audit on events`)
		w.trigger("events", "after insert or update", "row")
		_, err = w.call(b, nil)
		must(t, err)
	})
}

// cascadeTriggers are triggers on what a cascade reaches; each of them would run inside the deletion.
func TestATriggerOnWhatAForeignKeyReachesIsSeen(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.do(`create table clicks (id bigint, region text, session bigint references sessions on delete cascade, primary key (id, region)) partition by list (region)`)
		w.do(`create table clicks_eu partition of clicks for values in ('eu')`)
		w.do(`create table taps (id bigint primary key, click bigint, region text, session bigint unique references sessions on delete set null,
		      foreign key (click, region) references clicks on delete cascade)`)
		w.do(`create table marks (session bigint references taps (session) on update cascade)`)
		w.do(`insert into sessions values (1, now() - interval '1 year')`)
		w.do(`insert into clicks values (1, 'eu', 1)`)
		w.do(`create function nothing() returns trigger language plpgsql as 'begin return coalesce(old, new); end'`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		for i, made := range []struct{ when, table, level string }{
			{"after delete", "clicks", "row"},
			{"after delete", "clicks", "statement"},
			{"before delete", "clicks", "statement"},
			{"after delete", "clicks_eu", "row"},
			{"after delete", "taps", "row"},
			{"before update", "taps", "row"},
			{"after update", "taps", "statement"},
			{"after update", "marks", "row"},
		} {
			name := fmt.Sprintf("%s on %s for each %s", made.when, made.table, made.level)
			w.do(fmt.Sprintf(`create trigger audit_%d %s on %s for each %s execute function nothing()`, i, made.when, made.table, made.level))
			_, err := w.call(b, nil)
			if state := schemas.StateOf(err); state != schemas.SQLStateTriggers {
				t.Errorf("%s: got %v, want %s", name, err, schemas.SQLStateTriggers)
			}
			w.do(fmt.Sprintf(`drop trigger audit_%d on %s`, i, made.table))
		}
		w.do(`create rule r as on delete to clicks do also select 1`)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateTriggers)
		w.do(`drop rule r on clicks`)

		w.do(`create trigger harmless after insert on taps for each row execute function nothing()`)
		got, err := w.call(b, nil)
		must(t, err)
		want := map[string]int64{fmt.Sprint(w.oid("sessions")): 1, fmt.Sprint(w.oid("clicks_eu")): 1}
		if len(got.ByRelation) != 2 || got.ByRelation[fmt.Sprint(w.oid("clicks_eu"))] != 1 || got.Deleted != 1 {
			t.Errorf("got %+v, want %v", got, want)
		}
	})
}
