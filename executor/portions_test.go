package executor

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

func TestABatchThatSharesTheTimeLastsAboutItsSpanInAtMostTenPortions(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		portion time.Duration
		share   float64
		batch   int
		want    batch.Order
	}{
		{0, 0.1, 5000, batch.Order{Limit: 50}}, // nothing is known yet
		{ms, 0.5, 5000, batch.Order{Limit: 500, Portions: 10, Pause: 1}},
		{2 * ms, 0.1, 5000, batch.Order{Limit: 500, Portions: 10, Pause: 9}},
		{4 * ms, 0.1, 5000, batch.Order{Limit: 500, Portions: 10, Pause: 4}},
		{10 * ms, 0.1, 5000, batch.Order{Limit: 200, Portions: 4, Pause: 4}},
		{ms, 0.1, 130, batch.Order{Limit: 100, Portions: 2, Pause: 9}}, // the policy's batch has no more rows
		{101 * ms, 0.1, 5000, batch.Order{Limit: 200}},                 // an overloaded server: one portion of more rows
		{ms, 0.01, 5000, batch.Order{Limit: 500, Portions: 10, Pause: 19}},
		{2 * ms, 0.01, 5000, batch.Order{Limit: 250, Portions: 5, Pause: 19}}, // the second after the batch has to do
		{2 * ms, 0.001, 5000, batch.Order{Limit: 200}},
		{ms, 1, 5000, batch.Order{Limit: 500, Portions: 10}}, // all of it
		{ms, 0.1, 49, batch.Order{Limit: 49}},
		{ms, 0.1, 1, batch.Order{Limit: 1}},
	} {
		p := &record.InForce{Definition: functions.Definition{Expire: &expiry.Age{}}}
		p.Batch = c.batch
		s := &newPolicyMemory(p, nil).sizing
		s.portion = c.portion
		ordered := s.next(p, c.share, 200*ms)
		got := s.order(&batch.Lease{Shard: 1}, p, ordered, ordered.Limit)
		if got.Pause = math.Round(got.Pause*1000) / 1000; got.Limit != c.want.Limit || max(got.Portions, 1) != max(c.want.Portions, 1) || got.Portions > 1 && got.Pause != c.want.Pause {
			t.Errorf("portions of %v for %v of the time, %d rows a batch: %+v, want %+v", c.portion, c.share, c.batch, got, c.want)
		}
		for granted := 1; granted <= ordered.Limit; granted += 7 {
			if o := s.order(&batch.Lease{Shard: 1}, p, ordered, granted); o.Limit > granted || o.Limit < 1 || o.Portions > ordered.Portions || o.Portion() > singlePortion*ordered.Portion() {
				t.Errorf("of %+v %d rows were granted: %+v", ordered, granted, o)
			}
		}
		s.shapes[1] = &detour{left: 1}
		if o := s.order(&batch.Lease{Shard: 1}, p, ordered, ordered.Limit); !o.Careful || o.Portions != 0 || o.Pause != 0 || o.Limit > singlePortion*firstBatch {
			t.Errorf("a careful batch: %+v", o)
		}
	}
}

// A table with a hold ends each batch after its first portion. So the next ones are ordered as one, and have more rows for it; a new run tries again.
func TestABatchThatEndsAfterOnePortionIsOrderedAsOne(t *testing.T) {
	t.Parallel()
	p := &record.InForce{Definition: functions.Definition{Expire: &expiry.Age{}}}
	p.Batch = 5000
	s := &newPolicyMemory(p, nil).sizing
	s.portion = time.Millisecond
	o := s.next(p, 0.5, time.Second)
	s.through(p, 1, o, &batch.Result{Portions: 1, PassOver: true, Work: time.Millisecond}, time.Second)
	if o = s.next(p, 0.5, time.Second); o.Portions != mostPortions {
		t.Errorf("after the end of a pass: %+v", o)
	}
	s.through(p, 1, o, &batch.Result{Portions: 1, Work: time.Millisecond}, time.Second)
	if o = s.next(p, 0.5, time.Second); o.Portions > 1 || o.Limit != singlePortion*firstBatch {
		t.Errorf("after one portion of ten: %+v", o)
	}
	s.forget()
	if o = s.next(p, 0.5, time.Second); o.Portions != mostPortions {
		t.Errorf("in another run: %+v", o)
	}
}

// A row that is locked makes the whole batch fail. The careful ones after it get over all its portions before there is another one of several.
func TestAfterABatchOfPortionsFailedCarefulOnesGetOverIt(t *testing.T) {
	t.Parallel()
	s := shapes{}
	s.blocked(1, mostPortions)
	if left := s[1].left; left*singlePortion < mostPortions {
		t.Errorf("%d careful batches", left)
	}
}

// A batch that fails loses what all its portions did. So there are fewer of them where rows are locked, and more again where batches go through.
func TestWhereBatchesFailTheyHaveFewerPortions(t *testing.T) {
	t.Parallel()
	p := &record.InForce{Definition: functions.Definition{Expire: &expiry.Age{}}}
	p.Batch = 5000
	s := &newPolicyMemory(p, nil).sizing
	s.portion = time.Millisecond
	locked := &pgconn.PgError{Code: schemas.SQLStateLockNotAvailable}
	for n, want := range []int{10, 5, 2, 0, 0} {
		o := s.next(p, 0.5, time.Second)
		if o.Portions != want {
			t.Errorf("after %d failures: %+v, want %d portions", n, o, want)
		}
		s.blocked(1, o, locked)
	}
	for _, want := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 10} {
		s.through(p, 1, batch.Order{Limit: 50}, &batch.Result{Portions: 1, PassOver: true}, time.Second)
		if o := s.next(p, 0.5, time.Second); o.Portions != want {
			t.Errorf("after batches that went through: %+v, want %d portions", o, want)
		}
	}
}

// Some revoke EXECUTE on pg_sleep. Then batches make their pauses after COMMIT.
func TestWhereNobodyMaySleepABatchDoesNotPause(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "revoke execute on function pg_sleep(float8) from public")
		sessions(t, db, 3000, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Deleted != 3000 {
			t.Errorf("it did %+v", s)
		}
	})
}

// The table's trigger notes each statement. At gentle pace batches become several of them, and the pauses between them count as pauses; at
// unlimited pace each stays one.
func TestAGentleBatchIsSeveralStatements(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		for name, pace := range map[string]string{"gentle": "pace: gentle", "unlimited": "pace: unlimited"} {
			owned(t, db, "create table "+name+" (id bigint primary key, at timestamptz)", "create table "+name+"_noted (batch xid8 default pg_current_xact_id())",
				"insert into "+name+" select g, now() - interval '40 days' + g * interval '1 s' from generate_series(1, 3000) g",
				"create function "+name+"_note() returns trigger language plpgsql as $$ begin insert into public."+name+"_noted default values; return null; end $$",
				"create trigger note after delete on "+name+" for each statement execute function "+name+"_note()")
			arm(t, db, policies(policy(name, "public."+name, "triggers: trusted", pace)))
			e := newExecutor(t, db)
			s := only(t, once(t, e, schemas.PolicyName(name)))
			most := one[int](t, db, "select max(n) from (select count(*) as n from "+name+"_noted group by batch) b")
			paused := counted(t, e, "lapse_throttle_seconds_total", name, throttlePace)
			if gentle := name == "gentle"; s.Deleted != 3000 || most > 1 != gentle || paused > 0 != gentle {
				t.Errorf("%s: %d rows, %d statements in one batch, %v s of pauses", name, s.Deleted, most, paused)
			}
		}
	})
}
