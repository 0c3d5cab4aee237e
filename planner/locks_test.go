package planner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// A lock on one partition is waited for by batches on that one, and by no others.
func TestALockedPartitionBlocksOnlyItself(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		w.do(`create table clicks (id bigint primary key, event bigint, region text, foreign key (event, region) references events on delete cascade)`)
		for _, region := range []string{"eu", "us", "mars"} {
			w.do(`insert into events select n, $1, now() - interval '1 year' from generate_series(1, 10) n`, region)
		}
		file := policyText("shop.events", "last_seen", "30 days", "    state: armed")
		w.armed(file)
		w.exec, w.admin = w.impatient(testRoles.Executor), w.impatient("postgres")
		locker, err := db.ConnectAs(t, w.app).Begin(t.Context())
		must(t, err)
		_, err = locker.Exec(t.Context(), `lock table shop.events_eu in access exclusive mode`)
		must(t, err)

		// What reads the catalog, and what writes to it, does not wait.
		p := w.inForce()[0]
		r := w.open(&p)
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where run = $1`, r.ID); n != 3 {
			t.Errorf("the run has %d shards, want one for each partition", n)
		}
		changes, err := w.difference(strings.Replace(file, "30 days", "31 days", 1), false)
		must(t, err)
		must(t, w.write(&changes[0]))
		w.arm(p.ID)
		p = w.inForce()[0]
		r = w.open(&p)

		for region, table := range map[string]string{"eu": "events_eu", "us": "events_us", "mars": "events_rest_all"} {
			must(t, runSQL(w.admin, `update lapse.shard set done = leaf <> $1`, w.oid(table)))
			b := w.lease(p, r)
			got, err := w.call(b, nil)
			if region == "eu" {
				wantState(t, err, "55P03")
				continue
			}
			if err != nil || got.Deleted != 10 {
				t.Errorf("%s: got %+v, %v; want its ten rows deleted", region, got, err)
			}
		}
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if !strings.Contains(survey.Trouble, "holds a lock") {
			t.Errorf("a survey, which reads all of it, says %+v", survey)
		}
		must(t, locker.Rollback(t.Context()))
		must(t, runSQL(w.admin, `update lapse.shard set done = leaf <> $1`, w.oid("events_eu")))
		if got, err := w.call(w.lease(p, r), nil); err != nil || got.Deleted != 10 {
			t.Errorf("after the lock: got %+v, %v", got, err)
		}
		if n := value[int](w, `select count(*) from events`); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// impatient connects as a role that waits a tenth of a second for a lock, whatever resets its settings.
func (w *world) impatient(role string) *pgx.Conn {
	w.t.Helper()
	config, err := pgx.ParseConfig(w.db.As(role))
	must(w.t, err)
	config.RuntimeParams["lock_timeout"] = "100ms"
	conn, err := pgx.ConnectConfig(w.t.Context(), config)
	must(w.t, err)
	w.t.(*testing.T).Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// heldLocks are the tables of schema shop that a session of the executor's has locked, with the strongest mode of each.
const heldLocks = `
	select string_agg(relname || ' ' || mode, ', ' order by relname)
	  from (select c.relname, (array_agg(l.mode order by array_position('{AccessShareLock,RowShareLock,RowExclusiveLock}'::text[], l.mode) desc))[1] as mode
	          from pg_locks l
	          join pg_class c on c.oid = l.relation
	         where l.pid = $1 and c.relnamespace = 'shop'::regnamespace and c.relkind in ('r', 'p')
	         group by c.relname) held`

func TestABatchLocksItsLeafAndWhatGoesWithItAndNothingElse(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		w.do(`create table clicks (id bigint primary key, event bigint, region text, foreign key (event, region) references events on delete cascade)`)
		w.do(`create table marks (click bigint references clicks on delete cascade)`)
		w.do(`create table notes (event bigint, region text, foreign key (event, region) references events on delete set null)`)
		w.do(`create table orders (event bigint, region text, foreign key (event, region) references events)`)
		w.do(`create table beside (id bigint primary key)`)
		w.do(`insert into events values (1, 'us', now() - interval '1 year'), (2, 'us', now())`)
		w.do(`insert into clicks values (1, 1, 'us')`)
		w.do(`insert into marks values (1)`)
		w.do(`insert into notes values (1, 'us')`)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		must(t, runSQL(w.admin, `update lapse.shard set done = leaf <> $1`, w.oid("events_us")))
		b := w.lease(p, r)
		tx, err := w.exec.Begin(t.Context())
		must(t, err)
		got, err := w.callIn(tx, b, nil)
		must(t, err)
		if got.Deleted != 1 || len(got.ByRelation) != 3 {
			t.Errorf("got %+v, want a row of the leaf and of each table that goes with it", got)
		}
		const want = "clicks RowExclusiveLock, events_us RowExclusiveLock, marks RowExclusiveLock, notes RowExclusiveLock, orders RowShareLock"
		if got := valueOn[string](t, w.admin, heldLocks, w.exec.PgConn().PID()); got != want {
			t.Errorf("the batch holds\n%s\nwant\n%s", got, want)
		}
		must(t, tx.Rollback(t.Context()))
	})
}
