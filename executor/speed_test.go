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
		if s.Policies[0].Deleted != rows {
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
