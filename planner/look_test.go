package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// lookAt is a look at an instant, as the executor's login, in a transaction that may not write.
func (w *world) lookAt(p *record.InForce, at *time.Time) (look run.Look, err error) {
	w.t.Helper()
	return w.lookBeside(p, at, nil)
}

// lookBeside is a look that may leave out leaves with these marks.
func (w *world) lookBeside(p *record.InForce, at *time.Time, quiet []int64) (look run.Look, err error) {
	w.t.Helper()
	err = pgx.BeginTxFunc(w.t.Context(), w.exec, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := tx.Query(w.t.Context(), run.LookStatement(p), at, quiet)
		if err != nil {
			return err
		}
		looks, err := run.ReadLooks(rows, 1)
		look = looks[0]
		return err
	})
	return look, err
}

// looks is a look that must succeed; what it says is not kept is kept, and then it looks again.
func (w *world) looks(p *record.InForce) []uint32 {
	w.t.Helper()
	look, err := w.lookAt(p, nil)
	must(w.t, err)
	must(w.t, run.Acquaint(w.t.Context(), w.exec, p, &look))
	if len(look.Unkept) > 0 {
		look, err = w.lookAt(p, nil)
		must(w.t, err)
	}
	slices.Sort(look.Due)
	return look.Due
}

func (w *world) wantDue(p *record.InForce, tables ...string) {
	w.t.Helper()
	var want []uint32
	for _, table := range tables {
		want = append(want, w.oid(table))
	}
	slices.Sort(want)
	if got := w.looks(p); !slices.Equal(got, want) {
		w.t.Errorf("the look finds %d, want %v, %d", got, tables, want)
	}
}

// days are the DDL of a table that is partitioned by its expiry's column: so many partitions of a day from an instant on.
func days(table string, from string, n int) []string {
	return []string{
		fmt.Sprintf(`create table %s (id bigint, last_seen timestamptz not null, primary key (id, last_seen)) partition by range (last_seen)`, table),
		fmt.Sprintf(`do $$ begin for i in 0..%d loop execute format('create table %[2]s_%%s partition of %[2]s for values from (%%L) to (%%L)', i,
			date_trunc('day', %[3]s) + i * interval '1 day', date_trunc('day', %[3]s) + (i + 1) * interval '1 day'); end loop; end $$`, n-1, table, from),
	}
}

func TestALookSaysWhichLeavesHaveADueRow(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		partitioned(w)
		w.do(`create table beside partition of events for values in ('asia')`)
		p := w.armed("policies:\n  - {name: events, table: shop.events, expire: {column: last_seen, after: 30 days}, state: armed}\n" +
			"  - {name: sessions, table: shop.sessions, expire: {column: last_seen, after: 30 days}, state: armed}\n")
		plain := w.named("sessions")
		w.wantDue(&p)
		w.wantDue(&plain)
		w.do(`insert into events values (1, 'us', now() - interval '1 year'), (2, 'us', now()), (3, 'eu', now()), (4, 'mars', now() - interval '31 days')`)
		w.wantDue(&p, "events_us", "events_rest_all")
		w.do(`insert into sessions values (1, now() - interval '31 days')`)
		w.wantDue(&plain, "sessions")
		w.do(`update sessions set last_seen = now()`)
		w.wantDue(&plain)
		at := time.Now().Add(31 * 24 * time.Hour)
		look, err := w.lookAt(&plain, &at)
		must(t, err)
		if len(look.Due) != 1 {
			t.Errorf("in a month %d are due", look.Due)
		}
	})
}

// A look waits for nobody: a leaf that somebody has locked is one to try, and the others are read.
func TestALookDoesNotWaitForALeafThatIsLocked(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		w.wantDue(&p)
		locker, err := db.ConnectAs(t, w.app).Begin(t.Context())
		must(t, err)
		_, err = locker.Exec(t.Context(), `lock table shop.events_eu in access exclusive mode`)
		must(t, err)
		w.wantDue(&p, "events_eu")
		must(t, locker.Rollback(t.Context()))
		w.wantDue(&p)
		held := valueOn[int](t, w.admin, `select count(*) from pg_locks where relation = 'shop.events_us'::regclass`)
		if held != 0 {
			t.Errorf("%d locks stayed", held)
		}

		// The bounds of a partition are read without its lock, too.
		for _, ddl := range days("visits", "now() - interval '33 days'", 4) {
			w.do(ddl)
		}
		w.do(`insert into visits values (1, now() - interval '32 days')`)
		w.armed("policies:\n  - {name: visits, table: shop.visits, expire: {column: last_seen, after: 30 days}, state: armed}\n")
		ranges := w.named("visits")
		locker, err = db.ConnectAs(t, w.app).Begin(t.Context())
		must(t, err)
		_, err = locker.Exec(t.Context(), `lock table shop.visits_2 in access exclusive mode`)
		must(t, err)
		w.wantDue(&ranges, "visits_1", "visits_2")
		must(t, locker.Rollback(t.Context()))
	})
}

// The locks of thousands of leaves, and of their indexes, would fill the server's lock table, which the application needs too.
func TestALookHoldsTheLocksOfOneLeafAtATime(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, days("sessions", "now() - interval '33 days'", 40)...)
		w.do(`insert into sessions select n, now() - interval '34 days' + n * interval '1 day' from generate_series(2, 20) n`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.looks(&p)
		tx, err := w.exec.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `select * from `+functions.DueFunction(p.ID, p.Version)+`(null, null)`)
		must(t, err)
		const held = `select count(*) from pg_locks l join pg_class c on c.oid = l.relation where l.pid = $1 and c.relnamespace = 'shop'::regnamespace`
		if n := valueOn[int](t, w.admin, held, w.exec.PgConn().PID()); n != 0 {
			t.Errorf("the look has kept %d locks", n)
		}
		must(t, tx.Rollback(t.Context()))
	})
}

// Partitions whose bounds exclude due rows are neither opened nor locked, whatever is wrong with them.
func TestALookLeavesOutPartitionsThatCannotHaveDueRows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, days("sessions", "now() - interval '33 days'", 40)...)
		w.do(`create table late partition of sessions for values from ('2200-01-01') to (maxvalue) partition by range (last_seen)`)
		w.do(`create table late_0 partition of late for values from ('2200-01-01') to ('infinity')`)
		w.do(`create table rest partition of sessions default`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.wantDue(&p)
		for _, read := range []string{"rest", "sessions_0", "sessions_3"} { // a leaf that is locked would be one to try
			locker, err := db.ConnectAs(t, w.app).Begin(t.Context())
			must(t, err)
			_, err = locker.Exec(t.Context(), `lock table shop.sessions_4, shop.sessions_20, shop.late_0, shop.`+read+` in access exclusive mode`)
			must(t, err)
			w.wantDue(&p, read)
			must(t, locker.Rollback(t.Context()))
		}
		w.do(`insert into sessions values (1, now() - interval '32 days'), (2, now())`)
		w.wantDue(&p, "sessions_1")
		// How the table is divided is checked again when it changes.
		w.do(`alter table sessions detach partition sessions_1`)
		w.wantDue(&p)
		w.do(`alter table sessions attach partition sessions_1 for values from (` + value[string](w, `select quote_literal(date_trunc('day', now() - interval '33 days') + interval '1 day')`) + `) to (` +
			value[string](w, `select quote_literal(date_trunc('day', now() - interval '33 days') + interval '2 days')`) + `)`)
		w.wantDue(&p, "sessions_1")
		w.do(`alter table late detach partition late_0`)
		w.do(`alter table sessions detach partition late`)
		w.do(`create table older partition of sessions for values from (minvalue) to ('2020-01-01')`)
		w.do(`insert into sessions values (3, '2000-01-01')`)
		w.wantDue(&p, "sessions_1", "older")
	})
}

// With the index, and partitions by the due column, a look that finds nothing reads as many pages of a small table as of a large one, and
// of a table of one partition as of a thousand, but for how the table is divided.
//
//lapse:long
func TestALookThatFindsNothingCostsTheSameOnATableOfAnySize(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		file := "policies:\n"
		tables := []string{"t1000", fmt.Sprintf("t%d", largeTable), "few", "many"}
		for _, rows := range []int{1000, largeTable} {
			w.do(fmt.Sprintf(`create table t%d (id bigint primary key, last_seen timestamptz)`, rows))
			w.do(fmt.Sprintf(`insert into t%d select n, now() - interval '29 days' + n * interval '1 millisecond' from generate_series(1, %[1]d) n`, rows))
			w.do(fmt.Sprintf(`create index on t%d (last_seen, id)`, rows))
			must(t, runSQL(w.admin, fmt.Sprintf(`vacuum analyze shop.t%d`, rows)))
		}
		for table, n := range map[string]int{"few": 2, "many": partitions} {
			for _, sql := range days(table, "now() - interval '31 days'", n) {
				w.do(sql)
			}
		}
		for _, table := range tables {
			file += fmt.Sprintf("  - {name: %s, table: shop.%[1]s, expire: {column: last_seen, after: 30 days}, state: armed}\n", table)
		}
		w.armed(file)
		var pages []int64
		for _, table := range tables {
			p := w.named(schemas.PolicyName(table))
			w.wantDue(&p)
			pages = append(pages, buffersOf(t, w.exec, `select * from `+functions.DueFunction(p.ID, p.Version)+`(null, null)`))
		}
		t.Logf("pages read of %v: %d", tables, pages)
		const deeper = 10 // an index is read once for the plan's estimate of each end and once for the rows, a page for each level
		if pages[1] > pages[0]+deeper {
			t.Errorf("pages read of a small table %d, of a large one %d", pages[0], pages[1])
		}
		if divided := int64(partitions) / 20; pages[3] > pages[2]+divided {
			t.Errorf("pages read of few partitions %d, of many %d", pages[2], pages[3])
		}
	})
}

// What the checks guard against keeps a look from reading the table, as it keeps a batch from deleting: a look reads no leaf that was not
// checked as it is, and nothing is kept of one that is refused.
func TestALookReadsNoLeafThatWasNotChecked(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.do(`insert into sessions values (1, now() - interval '1 year')`)
		p := w.armed(untilArmed)
		// refused wants a look that reads nothing, now and after the checks were tried.
		refused := func(what, state string) {
			t.Helper()
			for range 2 {
				look, err := w.lookAt(&p, nil)
				must(t, err)
				if !slices.Equal(look.Unkept, []uint32{p.TableOID}) || !slices.Equal(look.Due, look.Unkept) || look.FoundNothing() {
					t.Errorf("%s: the look found %+v", what, look)
				}
				if err := run.Acquaint(t.Context(), w.exec, &p, &look); schemas.StateOf(err) != state {
					t.Errorf("%s: got %v", what, err)
				}
			}
		}
		w.do(`create function spy(bigint) returns bigint immutable language plpgsql as $$
			begin if current_setting('transaction_read_only')::boolean then raise exception 'the look runs this'; end if; return $1; end $$`)
		const spied = `create index spied on sessions (spy(id)) where spy(1) = 1`
		w.do(spied)
		refused("fresh, with code in an index", schemas.SQLStateTriggers)
		w.do(`drop index spied`)
		w.wantDue(&p, "sessions")
		w.do(spied)
		refused("with code in an index", schemas.SQLStateTriggers)
		w.do(`drop index spied`)
		w.wantDue(&p, "sessions")
		// What comes between the checks and the next look is not read either.
		w.do(`alter table sessions add column more int`)
		look, err := w.lookAt(&p, nil)
		must(t, err)
		must(t, run.Acquaint(t.Context(), w.exec, &p, &look))
		w.do(spied)
		refused("with code that came after the checks", schemas.SQLStateTriggers)
		w.do(`drop index spied`)
		w.wantDue(&p, "sessions")
		w.do(`alter table sessions rename to visits`)
		w.do(`create table sessions (like visits including all)`)
		refused("of another table", schemas.SQLStateTarget)
		w.do(`create table carts (id int primary key)`)
		w.do(`create table registry (id int primary key, until timestamptz)`)
		p = w.armed("policies:\n  - {name: p, table: shop.carts, expire: {sidecar: shop.registry, column: until}, state: armed}\n")
		w.do(`alter table registry rename to gone`)
		if _, err := w.lookAt(&p, nil); schemas.StateOf(err) != schemas.SQLStateTarget {
			t.Errorf("of another sidecar: got %v", err)
		}
	})
}

// Of each kind of expiry, a look finds something exactly where the survey counts something.
//
//lapse:long
func TestALookOfAnyKindAgreesWithTheCount(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		kinds := []string{
			`{column: at, after: 30 days}`, `{column: at, after: 1 month}`, `{column: at}`, `{column: wall, after: 2 days}`,
			`{column: wall, after: 2 days, zone: Europe/Berlin}`, `{column: day, after: 2 days}`, `{column: at, ttl_column: ttl}`, `{column: sec, epoch: s}`,
			`{column: note, iso8601: true}`, `{expression: "at + interval '1 day'"}`, `{sidecar: shop.registry%d, column: until}`,
			`{column: at, after: 30 days}, where: "tag = 'x'"`, `{column: at, after: 30 days}, shards: {count: 3}`,
		}
		file := "policies:\n"
		for i, kind := range kinds {
			w.do(fmt.Sprintf(`create table visits%d (id int primary key, at timestamptz, wall timestamp, day date, ttl int, sec bigint, note text, tag text)`, i))
			w.do(fmt.Sprintf(`create table registry%d (id int primary key, until timestamptz)`, i))
			w.do(fmt.Sprintf(`create index on visits%d (at, id)`, i))
			file += fmt.Sprintf("  - {name: p%02d, table: shop.visits%[1]d, expire: %[2]s, state: armed}\n", i, strings.ReplaceAll(kind, "%d", fmt.Sprint(i)))
		}
		w.armed(file)
		policies := w.inForce()
		for i := range policies {
			w.wantDue(&policies[i])
		}
		found, nothing := map[string]int{}, map[string]int{}
		seed := time.Now().UnixNano()
		t.Logf("seed %d", seed)
		draw := rand.New(rand.NewPCG(uint64(seed), 0))
		for round := range 30 {
			at := time.Now()
			for i, p := range policies {
				w.do(fmt.Sprintf(`delete from visits%d`, i))
				w.do(fmt.Sprintf(`delete from registry%d`, i))
				off, ttl, tag := draw.IntN(90*86400)-60*86400, draw.IntN(3000000), []string{"x", "y"}[draw.IntN(2)]
				switch round { // of each kind, at least these
				case 0: // due under all of them
					off, tag = -60*86400, "x"
				case 1:
					off = 30 * 86400
				}
				w.do(fmt.Sprintf(`insert into visits%d select n, a, a at time zone 'UTC', (a at time zone 'UTC')::date, $2, extract(epoch from a)::bigint, to_char(a at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), $3
					from (select n, now() + ($1 + n * 100000) * interval '1 second' as a from generate_series(1, 2) n) x`, i), off, ttl, tag)
				w.do(fmt.Sprintf(`insert into registry%d values (1, now() + $1 * interval '1 second')`, i), off)
				due := valueOn[int64](t, w.exec, `select due from `+functions.SurveyFunction(p.ID, p.Version)+`($1, null, 0)`, at)
				look, err := w.lookAt(&p, &at)
				if err != nil || (due > 0) != (len(look.Due) > 0) {
					t.Errorf("%s: %d are due, and the look finds %d, %v", kinds[i], due, look.Due, err)
				}
				if len(look.Due) > 0 {
					found[kinds[i]]++
				} else {
					nothing[kinds[i]]++
				}
			}
		}
		for _, kind := range kinds {
			if found[kind] == 0 || nothing[kind] == 0 {
				t.Errorf("%s: %d looks found something, %d nothing", kind, found[kind], nothing[kind])
			}
		}
	})
}

// Where much is past and not due, a look stops, and says that it does not know.
func TestALookReadsNoFurtherThanSoManyRowsThatMayNotBeDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (id bigint primary key, last_seen timestamptz, closed boolean)`, `create index on sessions (last_seen, id)`)
		w.do(fmt.Sprintf(`insert into sessions select n, now() - interval '1 year', false from generate_series(1, %d) n`, functions.LookRows-1))
		p := w.armed("policies:\n  - {name: p, table: shop.sessions, expire: {column: last_seen, after: 30 days}, where: closed, state: armed}\n")
		w.wantDue(&p)
		w.do(`insert into sessions select 1000000 + n, now() - interval '1 year', false from generate_series(1, 2) n`)
		w.wantDue(&p, "sessions")
	})
}
