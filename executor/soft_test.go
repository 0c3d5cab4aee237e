package executor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/schemas"
)

const softly = "action: {soft: {column: gone}}"

// A run of a soft policy counts the rows that it set as deleted; the next one has nothing to do, whatever is set already.
func TestASoftPolicySetsWhatIsDueAndLooksNoMoreAtIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table docs (id bigint primary key, at timestamptz, gone timestamptz, note text)",
			"create table pages (doc bigint references docs on delete cascade)",
			"insert into docs select g, now() - g * interval '1 hour' from generate_series(1, 2000) g", "insert into pages select id from docs", "analyze docs")
		arm(t, db, policies(policy("docs", "public.docs", "action: {soft: {column: gone}}", "batch: 100", "pace: unlimited")))
		e := newExecutor(t, db)
		first := only(t, once(t, e))
		if first.Deleted != 1281 || first.Cascaded != 0 {
			t.Errorf("the run did %+v, want 1281 rows set", first)
		}
		const is = `select concat_ws(' ', (select count(*) from docs), (select count(*) from docs where gone is not null and at + interval '30 days' <= gone),
			(select count(*) from docs where gone is not null), (select count(*) from pages),
			(select count(*) from lapse.batch where soft), (select sum(deleted) from lapse.batch_result))`
		before := one[string](t, db, is)
		if want := "2000 1281 1281 2000 "; before[:len(want)] != want {
			t.Errorf("rows, those set in time, set, pages, batches and counts are %s", before)
		}
		if s := once(t, e); len(s.Policies) > 0 && s.Policies[0].Deleted != 0 {
			t.Errorf("a second run did %+v", s)
		}
		if after := one[string](t, db, is); after != before {
			t.Errorf("a second run made %s of %s", after, before)
		}
	})
}

// A hold on what refers to a row does not keep it from being set, since that stays where it is; a hold on the row does. A row whose update is
// refused waits in quarantine, and leaves it when somebody sets its column.
func TestRowsThatAreHeldOrResistAreNotSet(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table docs (id bigint primary key, at timestamptz, gone timestamptz, constraint legal check (gone is null or id not in (7, 8, 9)))",
			"create table pages (id bigint primary key, doc bigint references docs on delete cascade)",
			"insert into docs select g, now() - interval '40 days' from generate_series(1, 100) g", "insert into pages select id, id from docs", "analyze docs")
		s := holdSession(t, db)
		held := placeHold(t, s, byKeys("public.docs", "3"))
		placeHold(t, s, byKeys("public.pages", "4"))
		arm(t, db, policies(policy("docs", "public.docs", softly, "pace: unlimited")))
		e := newExecutor(t, db)
		const is = `select concat_ws(' ', (select count(*) from docs), (select count(gone) from docs), (select string_agg(id::text, ',' order by id) from docs where gone is null),
			(select string_agg(concat_ws('/', key[1], sqlstate, constraint_name), ',' order by key[1]) from lapse.quarantine))`
		pass := func(deleted int64, want string) {
			t.Helper()
			s, _ := e.Once(t.Context(), []schemas.PolicyName{"docs"}) // it says which rows rest
			p := only(t, s)
			if got := one[string](t, db, is); got != want || p.Deleted != deleted {
				t.Errorf("after %d rows were set there are %s, want %d, %s", p.Deleted, got, deleted, want)
			}
		}
		pass(96, "100 96 3,7,8,9 7/23514/legal,8/23514/legal,9/23514/legal")
		pass(0, "100 96 3,7,8,9 7/23514/legal,8/23514/legal,9/23514/legal")
		owned(t, db, "alter table docs drop constraint legal", "update docs set gone = '2020-01-01' where id = 9")
		db.Exec(t, "update lapse.quarantine set retry_at = now()")
		pass(2, "100 99 3")
		if err := holds.Release(t.Context(), s, held, 0, "a test"); err != nil {
			t.Fatal(err)
		}
		pass(1, "100 100")
		if n := one[int](t, db, "select count(*)::int from docs where gone < '2021-01-01'"); n != 1 {
			t.Errorf("%d rows have what somebody set", n)
		}
	})
}

// Each of two workers has partitions, ranges or hash slices of its own.
func TestTwoWorkersSetNoRowTwice(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 600, 50
		var entries []string
		for name, more := range map[string]string{"ranged": "shards: {count: 2}", "hashed": "shards: {by: [id], count: 2}", "plain": "index: use"} {
			owned(t, db, "create table "+name+" (id bigint, at timestamptz, gone boolean, part int default 1, primary key (id, part)) partition by list (part)",
				"create table "+name+"_1 partition of "+name+" for values in (1)", "create index on "+name+" (at, id, part) where gone is not true",
				fmt.Sprintf("insert into %s select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", name, due),
				fmt.Sprintf("insert into %s select %d + g, now() - interval '20 days' from generate_series(1, %d) g", name, due, live))
			entries = append(entries, policy(name, "public."+name, softly, "batch: 10", "pace: unlimited", more))
		}
		owned(t, db, "create table plain_2 partition of plain for values in (2)", fmt.Sprintf("insert into plain select g + %d, at, null, 2 from plain, lateral (select id) i(g)", due+live), "analyze")
		arm(t, db, policies(entries...))
		h := recorded(t, db)
		if s := once(t, newExecutor(t, db)); len(s.Policies) != 3 || s.Policies[0].Deleted+s.Policies[1].Deleted+s.Policies[2].Deleted != 4*due {
			t.Errorf("it did %+v", s)
		}
		eachOnce(t, h, "UPDATE", "public.", 4*due)
		for _, name := range []string{"ranged", "hashed", "plain"} {
			if n := one[int](t, db, "select count(*)::int from "+name+" where gone is distinct from (case when at < now() - interval '30 days' then true end)"); n != 0 {
				t.Errorf("%s: %d rows are set that are not due, or the other way round", name, n)
			}
		}
		if n := one[int](t, db, "select count(distinct slice)::int from lapse.shard where deleted > 200"); n != 2 {
			t.Errorf("the slices of one partition were not worked off by two: %d", n)
		}
	})
}

// A row that somebody takes back is set again by the next run: no low-water mark hides it.
func TestARowThatIsTakenBackIsSetAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table docs (id bigint primary key, at timestamptz, gone date)",
			"insert into docs select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, 2000) g", "create index on docs (at, id)", "analyze docs")
		arm(t, db, policies(policy("docs", "public.docs", softly, "pace: unlimited", "latitude: 30 days")))
		e := newExecutor(t, db)
		once(t, e, "docs")
		if n := one[int](t, db, "select count(*)::int from lapse.low_water"); n != 0 {
			t.Errorf("there are %d marks", n)
		}
		db.Exec(t, "insert into lapse.low_water select p.id, p.table_oid, p.version, now(), now(), 1000000 from lapse.policy p")
		owned(t, db, "update docs set gone = null where id in (1, 1000, 2000)", "update docs set at = now() where id = 5")
		if p := only(t, once(t, e, "docs")); p.Deleted != 3 {
			t.Errorf("%d rows were set again, want 3", p.Deleted)
		}
	})
}

// A superuser's table: its deleter has rights on the column alone, and gets them for another when the policy comes to set that.
func TestTheColumnOfASuperusersTableIsSet(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "create table docs (id bigint primary key, at timestamptz, gone timestamptz, other boolean); insert into docs select g, now() - interval '40 days' from generate_series(1, 20) g")
		e := newExecutor(t, db)
		for _, column := range []string{"gone", "other"} {
			arm(t, db, policies(policy("docs", "public.docs", "action: {soft: {column: "+column+"}}")))
			if p := only(t, once(t, e, "docs")); p.Deleted != 20 {
				t.Errorf("%s: %d rows were set", column, p.Deleted)
			}
		}
	})
}

// While an application refreshes, sets, takes back, deletes and inserts rows, no row is set that is not due, and none that is set already.
func TestOnlyWhatIsDueIsSetWhileTheApplicationWrites(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const rows = 400
		var entries []string
		tables := []string{"ordered", "heaped"}
		for i, table := range tables {
			owned(t, db, "create table "+table+" (id bigint primary key, at timestamptz, gone timestamptz, mark text)",
				fmt.Sprintf("insert into %s select g, now() - g * interval '4 hours' from generate_series(1, %d) g", table, rows))
			if i == 0 {
				owned(t, db, "create index on ordered (at, id) where gone is null")
			}
			entries = append(entries, policy(table, "public."+table, softly, "batch: 7", "pace: unlimited"))
		}
		arm(t, db, policies(entries...))
		h := recorded(t, db)
		done := make(chan struct{})
		application := make(chan error, 2)
		for seed := range 2 {
			conn, draw := db.Connect(t), rand.New(rand.NewPCG(uint64(seed), 1))
			go func() {
				for {
					select {
					case <-done:
						application <- nil
						return
					default:
					}
					deed := []string{
						"update %s set at = now(), mark = 'app' where id = %d", "update %s set gone = '2020-01-01', mark = 'app' where id = %d",
						"update %s set gone = null, mark = 'app' where id = %d", "delete from %s where id = %d",
						"insert into %s values (%d, now() - interval '31 days', null, 'app') on conflict do nothing",
						"update %s set at = now() - interval '40 days', mark = 'app' where id = %d",
					}[draw.IntN(6)]
					if _, err := conn.Exec(t.Context(), fmt.Sprintf(deed, tables[draw.IntN(2)], 1+draw.IntN(rows))); err != nil {
						application <- err
						return
					}
				}
			}()
		}
		e := newExecutor(t, db)
		for range 4 {
			once(t, e, "ordered", "heaped")
		}
		close(done)
		for range 2 {
			if err := <-application; err != nil {
				t.Error(err)
			}
		}
		once(t, e, "ordered", "heaped")
		set, unset := 0, map[string]bool{}
		for _, tx := range h.read(t) {
			claim := tx.batch(t)
			for _, c := range tx.changes {
				key := c.table + "/" + c.row["id"]
				was, known := unset[key]
				switch {
				case !strings.HasPrefix(c.table, "public."):
				case claim == nil:
					unset[key] = c.kind != "DELETE" && c.row["gone"] == ""
				case c.kind != "UPDATE" || c.row["gone"] == "" || known && !was || !isDue(t, c.row["at"], claim["cutoff"]):
					t.Errorf("%s of a row, set before: %v, at %s, under the cutoff %s", c.kind, known && !was, c.row["at"], claim["cutoff"])
				default:
					set, unset[key] = set+1, false
				}
			}
		}
		for _, table := range tables {
			if n := one[int](t, db, "select count(*)::int from "+table+" where gone is null and at <= now() - interval '30 days 1 minute'"); n != 0 {
				t.Errorf("%s: %d due rows are left", table, n)
			}
		}
		if set < rows/2 {
			t.Errorf("only %d rows were set", set)
		}
	})
}

// isDue reads instants as the log has them.
func isDue(t *testing.T, at, cutoff string) bool {
	t.Helper()
	var instants [2]time.Time
	for i, text := range []string{at, cutoff} {
		var err error
		if instants[i], err = time.Parse("2006-01-02 15:04:05.999999-07", text); err != nil {
			t.Fatal(err)
		}
	}
	return !instants[0].Add(30 * 24 * time.Hour).After(instants[1])
}
