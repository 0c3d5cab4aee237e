package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
)

// quietOf returns what a look says that later ones may leave out.
func (w *world) quietOf(p *record.InForce) (marks []int64, leaves []uint32) {
	w.t.Helper()
	w.looks(p)
	look, err := w.lookAt(p, nil)
	must(w.t, err)
	for _, q := range look.Quiet {
		marks, leaves = append(marks, q.Mark), append(leaves, q.Leaf)
		if in := time.Until(q.Until); in < 11*time.Hour || in > 12*time.Hour {
			w.t.Errorf("a mark may be named for %s", in)
		}
	}
	return marks, leaves
}

// emptied are partitions of a day, of the last so many days but a few. From each of them a row was deleted.
func (w *world) emptied(table string, n int) {
	w.t.Helper()
	for _, sql := range days(table, fmt.Sprintf("now() - interval '%d days'", n+100), n) {
		w.do(sql)
	}
	// A session that ends says at once what it wrote.
	writer := w.db.ConnectAs(w.t, w.app)
	must(w.t, runSQL(writer, fmt.Sprintf(`insert into shop.%s select g, date_trunc('day', now() - interval '%d days') + g * interval '1 day' + interval '1 hour' from generate_series(0, %d) g`, table, n+100, n-1)))
	must(w.t, runSQL(writer, `delete from shop.`+table))
	must(w.t, writer.Close(w.t.Context()))
	for deadline := time.Now().Add(time.Minute); value[int](w, `select sum(pg_stat_get_tuples_inserted(c.oid))::int from pg_class c where c.relname like $1`, table+"_%") < n; {
		if time.Now().After(deadline) {
			w.t.Fatal("the statistics do not say what was written")
		}
	}
}

// A look leaves out what a former one found nothing in, as long as nothing is written to it.
func TestALookLeavesOutLeavesInWhichNothingWasDueAndNothingWasWritten(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		w.emptied("visits", 40)
		w.emptied("months", 40)
		w.do(`insert into months select g, now() - interval '130 days' from generate_series(1, 5) g`)
		w.do(`create table rest partition of visits default`)
		w.armed("policies:\n  - {name: visits, table: shop.visits, expire: {column: last_seen, after: 30 days}, state: armed}\n" +
			"  - {name: months, table: shop.months, expire: {column: last_seen, after: 1 month}, where: id > 0, state: armed}\n")
		p := w.named("visits")
		marks, leaves := w.quietOf(&p)
		if len(leaves) != 40 { // the default partition is an empty file, and is left out without a mark
			t.Fatalf("%d leaves are quiet", len(leaves))
		}
		locked := func(mode string, want ...string) {
			t.Helper()
			locker, err := db.ConnectAs(t, w.app).Begin(t.Context())
			must(t, err)
			_, err = locker.Exec(t.Context(), `lock table shop.visits_3, shop.visits_20 in `+mode+` mode`)
			must(t, err)
			look, err := w.lookBeside(&p, nil, marks)
			must(t, err)
			var oids []uint32
			for _, table := range want {
				oids = append(oids, w.oid(table))
			}
			if !slices.Equal(look.Due, oids) || len(look.Quiet) > 1 {
				t.Errorf("the look finds %d, and again %d quiet, want %v", look.Due, len(look.Quiet), want)
			}
			must(t, locker.Rollback(t.Context()))
		}
		locked("access exclusive") // nobody reads them
		// What is written moves the mark.
		must(t, runSQL(w.owner, `insert into shop.visits select 1, last_seen from (select date_trunc('day', now() - interval '140 days') + interval '3 days 2 hours' as last_seen) x`))
		found := func(want ...string) {
			t.Helper()
			var oids []uint32
			for _, table := range want {
				oids = append(oids, w.oid(table))
			}
			slices.Sort(oids)
			for deadline := time.Now().Add(90 * time.Second); ; {
				look, err := w.lookBeside(&p, nil, marks)
				must(t, err)
				if slices.Equal(look.Due, oids) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("the look finds %d, want %v", look.Due, want)
				}
				_, err = w.owner.Exec(t.Context(), `select pg_sleep(0.05)`) // on 14 a session tells what it wrote with its next statement
				must(t, err)
			}
		}
		found("visits_3")
		w.do(`insert into rest values (5, now() - interval '10 years')`)
		found("visits_3", "rest")
		// Without marks all of them are read.
		look, err := w.lookAt(&p, nil)
		must(t, err)
		if len(look.Due) != 2 || len(look.Quiet) != 39 {
			t.Errorf("a full look finds %d, and %d quiet", look.Due, len(look.Quiet))
		}
		// A leaf in which time, or an update alone, makes a row due: the first is read each time.
		p = w.named("months")
		w.looks(&p)
		look, err = w.lookAt(&p, nil)
		must(t, err)
		if len(look.Due) != 1 || len(look.Quiet) != 39 {
			t.Errorf("with a condition: %d due, %d quiet", look.Due, len(look.Quiet))
		}
	})
}

// A row that comes out of quarantine is nothing that is written to its leaf: the leaf is not left out.
func TestALookLeavesOutNoLeafWithARowThatMustStay(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		w.emptied("visits", 30)
		w.do(`insert into visits select 1000, date_trunc('day', now() - interval '130 days') + interval '4 days 5 hours'`)
		w.do(`insert into visits select 1001, date_trunc('day', now() - interval '130 days') + interval '5 days 5 hours'`)
		p := w.armed("policies:\n  - {name: visits, table: shop.visits, expire: {column: last_seen, after: 30 days}, state: armed}\n")
		must(t, runSQL(w.admin, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			select $1, $2, sha256(''), array[l.id::text, to_char(l.last_seen at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || '+00'], '23503', 'infinity' from shop.visits_4 l`, p.ID, w.oid("visits_4")))
		_, leaves := w.quietOf(&p)
		if slices.Contains(leaves, w.oid("visits_4")) || slices.Contains(leaves, w.oid("visits_5")) || len(leaves) != 28 {
			t.Errorf("%d leaves are quiet, those of rows that stay among them", len(leaves))
		}
	})
}

// A thousand partitions that are empty cost a look next to nothing, once it has read each.
func TestALookAtPartitionsThatAreEmptiedReadsThemOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		w.emptied("visits", 200)
		p := w.armed("policies:\n  - {name: visits, table: shop.visits, expire: {column: last_seen, after: 30 days}, state: armed}\n")
		marks, _ := w.quietOf(&p)
		if len(marks) != 200 {
			t.Fatalf("%d leaves are quiet", len(marks))
		}
		took := func(quiet []int64) (pages int64, least time.Duration) {
			for range 5 {
				began := time.Now()
				_, err := w.lookBeside(&p, nil, quiet)
				must(t, err)
				if d := time.Since(began); least == 0 || d < least {
					least = d
				}
			}
			return buffersOf(t, w.exec, fmt.Sprintf(`select * from `+functions.DueFunction(p.ID, p.Version)+`(null, '{%s}')`, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(quiet)), ","), "[]"))), least
		}
		pages, full := took(nil)
		fewer, short := took(marks)
		t.Logf("of %d partitions a full look reads %d pages in %s, one beside marks %d in %s", len(marks), pages, full, fewer, short)
		if fewer*5 > pages {
			t.Errorf("a full look reads %d pages, one beside marks %d", pages, fewer)
		}
	})
}

// Partitions whose files are empty are not opened. Where somebody has locked one, nobody asks how large the files are.
func TestALookLeavesOutPartitionsWithAnEmptyFile(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, days("visits", "now() - interval '70 days'", 30)...)
		p := w.armed("policies:\n  - {name: visits, table: shop.visits, expire: {column: last_seen, after: 30 days}, state: armed}\n")
		w.wantDue(&p)
		tried := func(want int) {
			t.Helper()
			if got := valueOn[int](t, w.admin, `select count(*) from lapse.candidates($1, $2, 'last_seen', localtimestamp, null, null)`, p.ID, p.Version); got != want {
				t.Errorf("%d partitions are tried, want %d", got, want)
			}
		}
		tried(0)
		locker, err := db.ConnectAs(t, w.app).Begin(t.Context())
		must(t, err)
		_, err = locker.Exec(t.Context(), `lock table shop.visits_7 in access exclusive mode`)
		must(t, err)
		tried(30)
		w.wantDue(&p, "visits_7")
		must(t, locker.Rollback(t.Context()))
		w.do(`insert into visits select 1, date_trunc('day', now() - interval '70 days') + interval '3 days 1 hour'`)
		tried(1)
		w.wantDue(&p, "visits_3")
	})
}
