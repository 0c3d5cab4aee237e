package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/survey"
)

// What a plan of n policies reads of the system catalog, and of one policy on n partitions, grows as n does: to four times as much, and not
// to sixteen times.
//
//lapse:long
func TestAPlanReadsTheCatalogInProportionToPoliciesAndPartitions(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(b *bare, n int) (file string){"policies": manyPolicies, "partitions": manyPartitions} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBare(t, pgtest.New(t, 18), "") // 14 says what was read only when it likes
			few := b.readBy(fill(b, 10))
			many := b.readBy(fill(b, 40))
			if many > 8*few {
				t.Errorf("%d rows and blocks of the catalog were read for 10, and %d for 40", few, many)
			}
		})
	}
}

// manyPolicies makes tables up to n, and a policy on each.
func manyPolicies(b *bare, n int) string {
	var all strings.Builder
	all.WriteString("policies:\n")
	for i := range n {
		b.do(fmt.Sprintf(`create table if not exists many_%d (id bigint primary key, at timestamptz not null)`, i))
		fmt.Fprintf(&all, "  - name: many-%d\n    table: shop.many_%[1]d\n    expire: { column: at, after: 30 days }\n    every: 1 hour\n", i)
	}
	return all.String()
}

// manyPartitions makes partitions up to n of one table, with a policy.
func manyPartitions(b *bare, n int) string {
	b.do(`create table if not exists parted (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`)
	for i := range n {
		b.do(fmt.Sprintf(`create table if not exists parted_%d partition of parted for values from ('%d-01-01Z') to ('%d-01-01Z')`, i, 2000+i, 2001+i))
	}
	return policyText("shop.parted", "at", "30 days")
}

// readBy is how many rows and blocks of the system catalog were read for the plan of a file.
func (b *bare) readBy(file string) int64 {
	b.t.Helper()
	b.db.Exec(b.t, `vacuum analyze`)
	before := b.read()
	all := b.proposals(file)
	d := b.draft(nil)
	end := d.Together()
	for i := range all {
		if len(all[i].Errors) > 0 {
			b.t.Fatal(all[i].Errors)
		}
		s, err := change.SurveyDraft(b.t.Context(), d, survey.Ask{AtMost: 1000}, all[i].Resolved)
		must(b.t, err)
		if s.Trouble != "" {
			b.t.Fatal(s.Trouble)
		}
	}
	end()
	return b.read() - before
}

// read is how many rows and blocks of the system catalog were read by sessions of the login that asks, which have ended.
func (b *bare) read() (n int64) {
	b.t.Helper()
	b.do(`select pg_stat_force_next_flush()`)
	for none := false; !none; {
		must(b.t, b.admin.QueryRow(b.t.Context(), `
			select not exists (select from pg_stat_activity a
			                    where a.datname = current_database() and a.usename = $1 and (a.state <> 'idle' or a.pid <> $2))`,
			b.login, int64(b.owner.PgConn().PID())).Scan(&none))
	}
	must(b.t, b.admin.QueryRow(b.t.Context(), `
		select sum(s.seq_tup_read + coalesce(s.idx_tup_fetch, 0))::bigint + sum(i.heap_blks_hit + i.heap_blks_read + coalesce(i.idx_blks_hit + i.idx_blks_read, 0))::bigint
		  from pg_stat_sys_tables s join pg_statio_sys_tables i using (relid)`).Scan(&n))
	return n
}

// Looks share a session, and so do the counts of one owner's tables: another one replaces it when it is gone, and for another owner.
func TestManyDraftsShareASessionToLookAndOneToCountForAnOwner(t *testing.T) {
	t.Parallel()
	b := newBare(t, pgtest.New(t, pgtest.Newest(t)), "postgres")
	all := b.proposals(manyPolicies(b, 4))
	d := b.draft(nil)
	connect, opened := d.Connect, []*pgx.Conn(nil)
	d.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := connect(ctx)
		opened = append(opened, conn)
		return conn, err
	}
	end := d.Together()
	other := b.db.NewRole(t, "other")
	b.do("grant usage on schema shop to " + other)
	must(t, b.script("alter table shop.many_3 owner to "+other))
	for i, sessions := range []int{2, 2, 3, 4} {
		if i == 2 {
			must(t, opened[0].Close(t.Context()))
		}
		s, err := change.SurveyDraft(t.Context(), d, survey.Ask{AtMost: 1000}, all[i].Resolved)
		must(t, err)
		if s.Trouble != "" || s.DueIs != survey.Exact || len(opened) != sessions {
			t.Errorf("after %d policies %d sessions were opened: %+v", i+1, len(opened), s)
		}
	}
	end()
	for i, conn := range opened {
		if !conn.IsClosed() {
			t.Errorf("session %d is still open", i)
		}
	}
}

// The statements of one count go when the next one is made: a session keeps no more of many counts than of a few.
func TestManyCountsLeaveNoMoreInASessionThanAFew(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "postgres")
		all := b.proposals(manyPolicies(b, 12))
		d := b.draft(nil)
		defer d.Together()()
		owner := &database.Owner{OID: all[0].Resolved.Definition.TableOwner}
		var kept [2]int
		for i := range all {
			s, err := change.SurveyDraft(t.Context(), d, survey.Ask{AtMost: 1000}, all[i].Resolved)
			must(t, err)
			if s.Trouble != "" {
				t.Fatal(s.Trouble)
			}
			must(t, d.CountFor(t.Context(), owner, func(tx *database.DraftTx) error {
				return tx.QueryRow(t.Context(), `select count(*) from pg_backend_memory_contexts where name = 'CachedPlanSource'`,
					pgx.QueryExecModeSimpleProtocol).Scan(&kept[min(i/3, 1)])
			}))
		}
		if kept[0] == 0 || kept[1] > kept[0] {
			t.Errorf("the session keeps %d statements after three counts and %d after twelve", kept[0], kept[1])
		}
	})
}

// A survey says which partitions can have due rows by their bounds: those that begin at or before the instant that rows are due at.
func TestASurveySaysWhichPartitionsCanHaveDueRows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "")
		file := manyPartitions(b, 40)
		b.do(`create table parted_later partition of parted for values from ('2040-01-01Z') to (maxvalue) partition by range (at)`)
		b.do(`create table parted_2040 partition of parted_later for values from (minvalue) to ('2041-01-01Z')`)
		b.do(`create table parted_rest partition of parted default`)
		for at, want := range map[string]int{"2010-01-30T23:59:59Z": 11, "2010-01-31T00:00:00Z": 12, "1990-01-01T00:00:00Z": 1, "2099-01-01T00:00:00Z": 42} {
			instant, err := time.Parse(time.RFC3339, at)
			must(t, err)
			if s := b.survey(file, survey.Ask{At: instant}); s.Trouble != "" || len(s.Likely) != want || len(s.Shards) != 42 {
				t.Errorf("at %s %d of %d can have due rows, want %d: %s", at, len(s.Likely), len(s.Shards), want, s.Trouble)
			}
		}
	})
}
