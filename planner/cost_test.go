package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// looking is a database whose batches' checks are timed.
type looking struct {
	*world
	batch *batch
	leaf  string
}

// newLooking makes a policy on sessions, with a child that a cascade deletes and one that stays, or on whatever ddl makes of it.
func newLooking(t testing.TB, db *pgtest.DB, ddl ...string) *looking {
	t.Helper()
	l := &looking{world: newWorld(t, db, append(ddl,
		`create table clicks (id bigint primary key, session bigint references sessions on delete cascade)`,
		`create table notes (id bigint primary key, session bigint references sessions on delete set null)`)...)}
	p := l.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	l.batch = l.lease(p, l.open(&p))
	l.leaf = valueOn[string](t, l.admin, `select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = $1`, l.batch.Claim.Target)
	must(t, l.script(`create publication lapse_deletes for table shop.sessions, shop.clicks with (publish = 'delete, truncate'); update lapse.installation set audit_required = true`))
	must(t, l.script(`
		create function shop.looks(claim lapse.claim, work lapse.work, leaf text) returns float8 language plpgsql as $$
		declare
		  started timestamptz;
		  took    float8[];
		begin
		  for i in 1..60 loop
		    started := clock_timestamp();
		    perform lapse.check_leaf(claim, work, leaf);
		    if i > 10 then
		      took := took || extract(epoch from clock_timestamp() - started)::float8;
		    end if;
		  end loop;
		  return (select percentile_cont(0.5) within group (order by t) from unnest(took) t);
		end $$;
		analyze`))
	return l
}

// look returns the median time of fifty looks of one batch.
func (l *looking) look() time.Duration {
	l.t.Helper()
	c := l.batch.Claim
	id := uuid.New()
	var median float64
	must(l.t, pgx.BeginFunc(l.t.Context(), l.admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(l.t.Context(), `update lapse.shard set entered = pg_current_xact_id(), batch = $2 where id = $1`, l.batch.Shard, id)
		if err != nil {
			return err
		}
		return tx.QueryRow(l.t.Context(), `
			select shop.looks(row('1', 1, 1, 1, pg_current_xact_id(), now(), $1::uuid, 1, 'p', 1, $2::uuid, $3::timestamptz, 0, $4::oid, $5::oid[], '')::lapse.claim,
			                  row($6::bigint, 0, '', 1, null, false, false, null, null)::lapse.work, $7::text)`,
			id, c.Run, c.Cutoff, c.Target, c.Cascades, l.batch.Shard, l.leaf).Scan(&median)
	}))
	return time.Duration(median * float64(time.Second))
}

// wantSameCost compares the looks in two databases, in turns. Somebody else's work on the machine makes a turn slower, and
// none faster: the best of a few turns counts.
func wantSameCost(t *testing.T, small, large *looking) {
	t.Helper()
	best := 1e9
	for range 6 {
		a, b := small.look(), large.look()
		best = min(best, float64(b)/float64(a))
		t.Logf("a look takes %s and %s", a, b)
	}
	if best >= 3 { // a cost that grows with what lies elsewhere is tens of times
		t.Errorf("a look costs at least %.1f times what it costs without them", best)
	}
}

//lapse:long
func TestForeignKeysElsewhereCostABatchNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		large := newLooking(t, db, sessions, `do $$
			declare keys text := ', foreign key (c) references elsewhere_';
			begin
			  create table elsewhere_0 (id int primary key, c int);
			  for i in 1..200 loop
			    execute 'create table elsewhere_' || i || ' (id int primary key, c int' || repeat(keys || i - 1 || ' on delete cascade', 40) || ')';
			  end loop;
			end $$`)
		if n := valueOn[int](t, large.admin, `select count(*) from pg_constraint where contype = 'f' and connamespace = 'shop'::regnamespace`); n != 8002 {
			t.Fatalf("%d foreign keys were made", n)
		}
		wantSameCost(t, newLooking(t, pgtest.New(t, db.Major), sessions), large)
	})
}

//lapse:long
func TestAThousandPartitionsCostABatchNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		wantSameCost(t, newLooking(t, pgtest.New(t, db.Major), sessionsOf(3)...), newLooking(t, db, sessionsOf(partitions)...))
	})
}

// partitions is how many the test makes: more take longer to make than to check.
const partitions = 1000

// sessionsOf is the DDL of sessions with so many partitions.
func sessionsOf(partitions int) []string {
	ddl := []string{`create table sessions (id bigint primary key, last_seen timestamptz not null) partition by range (id)`}
	for from := 0; from < partitions; from += 500 {
		ddl = append(ddl, fmt.Sprintf(`do $$ begin for i in %d..%d loop
			execute format('create table sessions_%%s partition of sessions for values from (%%s) to (%%s)', i, i, i + 1);
			end loop; end $$`, from, min(from+500, partitions)-1))
	}
	return ddl
}
