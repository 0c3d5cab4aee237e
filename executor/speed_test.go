package executor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// BenchmarkAgainstOneDelete deletes 200,000 of 400,000 rows in signed batches, and the same rows of a twin table in one
// statement; the ratio of the two is what it is about.
//
//	go test ./executor -run '^$' -bench AgainstOneDelete -benchtime 5x
func BenchmarkAgainstOneDelete(b *testing.B) {
	const rows = 200_000
	db := pgtest.New(b, pgtest.Newest(b))
	var batches, giant []time.Duration
	for n := range b.N {
		for _, table := range []string{"a", "b"} {
			owned(b, db, fmt.Sprintf("drop table if exists %s; create table %[1]s (id bigint primary key, at timestamptz, note text)", table),
				fmt.Sprintf("insert into %s select g, now() - g %% 2 * interval '40 days' - g * interval '1 second', repeat('x', 100) from generate_series(1, %d) g", table, 2*rows),
				fmt.Sprintf("create index on %s (at, id)", table))
			db.Exec(b, "vacuum analyze "+table, "checkpoint")
		}
		arm(b, db, policies(policy(fmt.Sprintf("p%d", n), "public.a")))
		e := newExecutor(b, db)
		begun := time.Now()
		s := once(b, e)
		batches = append(batches, time.Since(begun))
		if only(b, s).Deleted != rows {
			b.Fatalf("%+v", s)
		}
		begun = time.Now()
		db.Exec(b, "delete from b where at + interval '30 days' <= now()")
		giant = append(giant, time.Since(begun))
	}
	slices.Sort(batches)
	slices.Sort(giant)
	mine, theirs := batches[len(batches)/2], giant[len(giant)/2]
	b.ReportMetric(rows/mine.Seconds(), "rows/s")
	b.ReportMetric(rows/theirs.Seconds(), "one-delete-rows/s")
	b.ReportMetric(theirs.Seconds()/mine.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTheChecksOfHistoryBeatAndPublications deletes rows in batches of one, and times the checks that lapse.enter makes
// where an audit is required, in a session that has made them before, as a worker's has. The publications have one table, and
// a thousand.
//
//	go test ./executor -run '^$' -bench TheChecks -benchtime 300x
func BenchmarkTheChecksOfHistoryBeatAndPublications(b *testing.B) {
	for _, tables := range []int{1, 1000} {
		b.Run(fmt.Sprint(tables), func(b *testing.B) {
			db := pgtest.New(b, pgtest.Newest(b))
			sessions(b, db, 2000, 5)
			arm(b, db, policies(policy("p", "public.sessions")))
			requireAudit(b, db)
			makeSlot(b, db)
			db.Exec(b, fmt.Sprintf(`do $$ begin for i in 2..%d loop
				execute format('create table other_%%s (id int primary key)', i);
				execute format('alter publication lapse_deletes add table other_%%s', i);
				end loop; end $$`, tables))
			db.Exec(b, "select lapse.record_publications()", `
				create function checks(times int) returns float8 language plpgsql set search_path = pg_catalog, pg_temp as $$
				declare
				  began timestamptz;
				  took  float8[];
				begin
				  for i in 1..times loop
				    began := clock_timestamp();
				    perform (select h.number from lapse.history h order by h.number desc limit 1), lapse.timeline();
				    if not exists (
				      select from lapse.heartbeat b
				       where b.at between clock_timestamp() - interval '2 minutes' and clock_timestamp() + interval '2 minutes'
				         and b.history = 1 and b.timeline = 1 and b.server_start = pg_postmaster_start_time() and b.database_oid > 1) then
				      raise exception 'no beat';
				    end if;
				    if lapse.publications_fault() is not null then
				      raise exception 'a fault';
				    end if;
				    took := took || extract(epoch from clock_timestamp() - began)::float8;
				  end loop;
				  return (select percentile_cont(0.5) within group (order by t) from unnest(took) t);
				end $$`)
			pgtest.Beat(b, db)
			// As long a list of beats as a database has after a day.
			for range 24 {
				db.Exec(b, pgtest.Beats("clock_timestamp() - interval '1 hour'"))
			}
			// Somebody else's work on the machine makes a turn slower, and none faster.
			checks := time.Hour
			for range 10 {
				checks = min(checks, time.Duration(one[float64](b, db, "select public.checks(100)")*float64(time.Second)))
			}
			w := open(b, db, "p")
			if _, err := w.batch(b, 1); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				if _, err := w.batch(b, 1); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			batch := took[len(took)/20]
			b.ReportMetric(float64(batch.Microseconds()), "us/batch")
			b.ReportMetric(float64(checks.Microseconds()), "us/checks")
			b.ReportMetric(batch.Seconds()/(batch-checks).Seconds(), "after/before")
			b.ReportMetric(0, "ns/op")
		})
	}
}
