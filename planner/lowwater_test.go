package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// soonMarked lets marks count early: a test deletes few rows.
const soonMarked = `create or replace function lapse.worth_a_mark() returns bigint language sql immutable as 'select 1000::bigint'`

// marked is how many marks a table has, and counted how many of them count.
func (w *world) marked(p *record.InForce, table string) (marks, counted int) {
	w.t.Helper()
	must(w.t, w.admin.QueryRow(w.t.Context(), `select (select count(*) from lapse.low_water where leaf = $3), (select count(*) from lapse.low_mark($1, $2, $3))`,
		p.ID, p.Version, w.oid(table)).Scan(&marks, &counted))
	return marks, counted
}

func (w *world) wantMark(p *record.InForce, table string) {
	w.t.Helper()
	if marks, counted := w.marked(p, table); marks != 1 || counted != 1 {
		w.t.Fatalf("%s has %d marks, and %d count; want one", table, marks, counted)
	}
}

// worked works off a policy's next run.
func (w *world) worked(p *record.InForce) result {
	w.t.Helper()
	return w.deleteAll(*p, w.open(p), p.Batch)
}

var errMeasured = errors.New("measured")

// buffersOfBatch is how many pages a batch reads that is rolled back.
func (w *world) buffersOfBatch(b *batch) (pages int64) {
	w.t.Helper()
	err := pgx.BeginFunc(w.t.Context(), w.exec, func(tx pgx.Tx) error {
		c := &b.Claim
		must(w.t, tx.QueryRow(w.t.Context(), `select pg_current_xact_id()::text::bigint, now(), (select oid from pg_database where datname = current_database()), 1, lapse.timeline(), gen_random_uuid()`).
			Scan(&c.XID, &c.StartedAt, &c.DatabaseOID, &c.History, &c.Timeline, &c.Batch))
		sql, args := b.statement()
		var text string
		must(w.t, tx.QueryRow(w.t.Context(), "explain (analyze, buffers, format json) "+sql, args...).Scan(&text))
		var plan []struct {
			Plan struct {
				Hit  int64 `json:"Shared Hit Blocks"`
				Read int64 `json:"Shared Read Blocks"`
			}
		}
		must(w.t, json.Unmarshal([]byte(text), &plan))
		pages = plan[0].Plan.Hit + plan[0].Plan.Read
		return errMeasured
	})
	if !errors.Is(err, errMeasured) {
		w.t.Fatal(err)
	}
	return pages
}

// While an old snapshot keeps dead rows from being removed, neither a look nor a batch reads past them, nor does PostgreSQL while it plans them.
func TestDeadRowsOfFormerRunsAreNotWadedThrough(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		must(t, w.script(soonMarked))
		w.do(fmt.Sprintf(`insert into sessions select n, now() - interval '40 days' + n * interval '1 second' from generate_series(1, %d) n`, largeTable))
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    batch: 20000"))
		old, err := w.db.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		must(t, err)
		_, err = old.Exec(t.Context(), `select count(*) from shop.sessions where id < 3`)
		must(t, err)
		if total := w.worked(&p); total.Deleted != largeTable {
			t.Fatalf("got %+v", total)
		}
		w.wantMark(&p, "sessions")
		w.do(fmt.Sprintf(`insert into sessions select -n, now() - interval '20 days' + n * interval '1 minute' from generate_series(1, %d) n`, largeTable/10))
		w.do("analyze sessions")
		look := func() int64 {
			return buffersOf(t, w.exec, `select * from `+functions.DueFunction(p.ID, p.Version)+`(null, null)`)
		}
		with := look()
		w.do(`insert into sessions values (0, now() - interval '720 hours')`)
		w.wantDue(&p, "sessions")
		b := w.lease(p, w.open(&p))
		batch := w.buffersOfBatch(b)
		must(t, runSQL(w.admin, `create table kept as select * from lapse.low_water`))
		must(t, runSQL(w.admin, `delete from lapse.low_water`))
		without, batchWithout := look(), w.buffersOfBatch(b)
		t.Logf("pages of a look %d, without a mark %d; of a batch of one row %d, without a mark %d", with, without, batch, batchWithout)
		if with*10 > without || batch*2 > batchWithout {
			t.Error("the mark spares too little")
		}
		must(t, runSQL(w.admin, `insert into lapse.low_water select * from kept`))
		if total := w.deleteAll(p, record.Run{ID: b.Run.ID, Cutoff: b.Run.Cutoff}, p.Batch); total.Deleted != 1 {
			t.Errorf("of one due row %+v", total)
		}
		w.wantDue(&p)
		w.wantMark(&p, "sessions")
		must(t, old.Rollback(t.Context()))
		w.do("analyze sessions")
		if pages := look(); pages > with+20 {
			t.Errorf("beside rows that vacuum could remove a look reads %d pages, and %d before", pages, with)
		}
	})
}

// A mark is a hint: what comes to lie below it stays until it does not count any more, and then goes.
func TestRowsBehindTheMarkGoWithinHalfTheLatitude(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		must(t, w.script(soonMarked))
		latitudes, file := []string{"", ", latitude: 2 hours"}, "policies:\n"
		for i, latitude := range latitudes {
			w.do(fmt.Sprintf(`create table t%d (id bigint primary key, last_seen timestamptz)`, i))
			w.do(fmt.Sprintf(`create index on t%d (last_seen, id)`, i))
			w.fill(fmt.Sprintf("t%d", i), 2000)
			file += fmt.Sprintf("  - {name: p%d, table: shop.t%[1]d, expire: {column: last_seen, after: 30 days}, state: armed, batch: 1000%s}\n", i, latitude)
		}
		w.armed(file)
		for i, latitude := range latitudes {
			table, half := fmt.Sprintf("t%d", i), []time.Duration{12 * time.Hour, time.Hour}[i]
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			hour, err := w.db.ConnectAs(t, w.app).Begin(t.Context())
			must(t, err)
			_, err = hour.Exec(t.Context(), `insert into shop.`+table+` values (-1, now() - interval '35 days')`)
			must(t, err)
			if total := w.worked(&p); total.Deleted != 2000 {
				t.Fatalf("got %+v", total)
			}
			must(t, hour.Commit(t.Context()))
			w.do(`update ` + table + ` set last_seen = now() - interval '1 year' where id = 4000`)
			below := func() int {
				w.worked(&p)
				return value[int](w, `select count(*) from `+table+` where last_seen < now() - interval '721 hours'`)
			}
			back := func(by time.Duration) {
				must(t, runSQL(w.admin, `update lapse.low_water set full_at = full_at - $1::interval, deleted = 1000000000`, by))
			}
			back(half - time.Minute)
			w.wantDue(&p)
			if n := below(); n != 2 {
				t.Errorf("latitude %q: %d rows are left below the mark, want two", latitude, n)
			}
			// A run that finds something moves the mark, and it is no more of a pass from the start.
			w.do(`update ` + table + ` set last_seen = now() - interval '720 hours' where id = 3999`)
			if n := below(); n != 2 {
				t.Errorf("latitude %q, after another run: %d rows are left, want two", latitude, n)
			}
			if value[bool](w, `select exists (select from `+table+` where id = 3999)`) {
				t.Errorf("latitude %q: a row that fell due after the mark is left", latitude)
			}
			w.wantMark(&p, table)
			back(2 * time.Minute)
			w.wantDue(&p, table)
			if n := below(); n != 0 {
				t.Errorf("latitude %q: %d due rows are left after half of it", latitude, n)
			}
		}
		if !valueOn[bool](t, w.admin, `select bool_and(l.upto = (select max(r.cutoff) from lapse.run r where r.policy_id = l.policy_id) - interval '10 seconds') from lapse.low_water l`) {
			t.Error("a mark does not lie as far before the cutoff as TestNoRowThatIsNotDueYetLiesBehindTheMark takes for granted")
		}
		changes, err := w.difference("policies: []\n", true)
		must(t, err)
		for i := range changes {
			must(t, w.write(&changes[i]))
		}
		if marks := valueOn[int](t, w.admin, `select count(*) from lapse.low_water`); marks != 0 {
			t.Errorf("dropped policies have %d marks", marks)
		}
	})
}

// Whatever a pass left, or may have left, keeps it from making a mark.
func TestAPassThatLeftSomethingMakesNoMark(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create function stays() returns trigger language plpgsql as $$ begin return case when old.id <> 5 then old end; end $$`)
		must(t, w.script(soonMarked))
		locker, err := w.db.ConnectAs(t, w.app).Begin(t.Context())
		must(t, err)
		cases := []struct {
			name, shape, more string
			rows              int
			prepare           func(p *record.InForce, table string)
			mark              bool
		}{
			{name: "all", mark: true},
			{name: "all, by picks", shape: functions.ShapePick, mark: true},
			{name: "all, cut by hash", more: ", shards: {count: 2}", mark: true},
			{name: "few", rows: 999},
			{name: "in the order of the file", shape: functions.ShapeHeap},
			{name: "a condition", more: `, where: "id > 0"`},
			{name: "months", more: ", months"},
			{name: "a locked row", shape: functions.ShapePick, prepare: func(_ *record.InForce, table string) {
				_, err := locker.Exec(t.Context(), `select from shop.`+table+` where id = 7 for update`)
				must(t, err)
			}},
			{name: "a row in quarantine", prepare: func(p *record.InForce, table string) { w.rest(p, "shop."+table, "1 hour", []string{"7"}) }},
			{name: "a row that a trigger keeps", more: ", triggers: trusted"},
		}
		file := "policies:\n"
		for i, c := range cases {
			table, after, more := fmt.Sprintf("t%02d", i), "30 days", c.more
			if more == ", months" {
				after, more = "1 month", ""
			}
			w.do(fmt.Sprintf(`create table %s (id bigint primary key, last_seen timestamptz not null)`, table))
			index := `create index on %s (last_seen, id)`
			if strings.Contains(more, "where") {
				index += ` where id > 0`
			}
			w.do(fmt.Sprintf(index, table))
			w.fill(table, 1100) // what stays is not what keeps them below a thousand
			if c.rows > 0 {
				w.do(fmt.Sprintf(`delete from %s where id > %d and id <= 1100`, table, c.rows))
			}
			if c.more == ", triggers: trusted" {
				w.do(`create trigger stays before delete on ` + table + ` for each row execute function stays()`)
			}
			file += fmt.Sprintf("  - {name: p%02d, table: shop.%s, expire: {column: last_seen, after: %s}, state: armed, batch: 400%s}\n", i, table, after, more)
		}
		w.armed(file)
		for i, c := range cases {
			p, table := w.named(schemas.PolicyName(fmt.Sprintf("p%02d", i))), fmt.Sprintf("t%02d", i)
			if c.prepare != nil {
				c.prepare(&p, table)
			}
			r := w.open(&p)
			for b := w.leaseAny(p, r); b != nil; b = w.leaseAny(p, r) {
				b.Shape = c.shape
				for done := false; !done; {
					if _, counted := w.marked(&p, table); counted > 0 {
						t.Errorf("%s: there is a mark before the run is over", c.name)
					}
					got, err := w.call(b, nil)
					must(t, err)
					done = got.Finished
				}
			}
			if _, counted := w.marked(&p, table); counted > 0 != c.mark {
				t.Errorf("%s: %d marks count, want one: %t", c.name, counted, c.mark)
			}
		}
		must(t, locker.Rollback(t.Context()))
	})
}

// Some changes let a row be deleted that was kept, or make other rows due: those that lie below the mark are found at once.
func TestTheMarkDoesNotCountWhereRowsBehindItMayBeDueAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		must(t, w.script(soonMarked))
		more := []string{"    state: armed", "    batch: 1000"}
		w.armed(policyText("shop.sessions", "last_seen", "30 days", more...))
		for _, c := range []struct{ name, sql string }{
			{"a row's next try has come", `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
				values (1, 'shop.sessions'::regclass, sha256('1'), array['-1'], '23503', clock_timestamp() - interval '1 second')`},
			{"a row was forgiven", `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, tried_at, retry_at)
				values (1, 'shop.sessions'::regclass, sha256('1'), array['-1'], '23503', now() - interval '1 hour', now() - interval '1 hour'); select lapse.forgive(1, now())`},
			{"the clock was set back", `update lapse.low_water set full_at = clock_timestamp() + interval '1 hour'`},
			{"another version", ""},
		} {
			p := w.named("p")
			w.do(`delete from sessions`)
			w.fill("sessions", 1000)
			must(t, w.script(`delete from lapse.low_water; delete from lapse.quarantine`))
			w.worked(&p)
			w.wantMark(&p, "sessions")
			w.do(`insert into sessions values (-1, now() - interval '1 year')`)
			w.wantDue(&p)
			if c.sql != "" {
				must(t, w.script(c.sql))
			} else {
				w.apply(policyText("shop.sessions", "last_seen", "31 days", more...))
				w.arm(p.ID)
				p = w.named("p")
			}
			w.wantDue(&p, "sessions")
			if total := w.worked(&p); total.Deleted != 1 {
				t.Errorf("%s: %+v, want the row gone", c.name, total)
			}
		}
	})
}

// Where a bound is rounded, a row that is not due yet does not come to lie below the mark.
func TestNoRowThatIsNotDueYetLiesBehindTheMark(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table visits (id int primary key, at timestamptz, wall timestamp, day date, sec bigint, ms bigint, real8 double precision, num numeric, doc jsonb)`)
		must(t, w.script(soonMarked))
		w.do(`insert into visits select n, a, a at time zone 'UTC', (a at time zone 'UTC')::date, extract(epoch from a)::bigint, (extract(epoch from a) * 1000)::bigint,
			extract(epoch from a), extract(epoch from a), jsonb_build_object('e', extract(epoch from a))
			from (select n, timestamptz '2026-01-02 00:00:00.7+00' + n * interval '0.37 seconds' as a from generate_series(-60, 60) n) x`)
		file := "policies:\n"
		for i, kind := range []string{
			`{column: at}`, `{column: at, after: 30 hours}`, `{column: wall, after: 1 day}`, `{column: day, after: 1 day}`, `{column: sec, epoch: s}`, `{column: ms, epoch: ms, after: 1 hour}`,
			`{column: real8, epoch: s}`, `{column: num, epoch: s, after: 1 day}`, `{column: doc, path: e, epoch: s}`, `{expression: "at + interval '1 day'"}`, `{bucket: {column: day, span: 1 day}, after: 1 day}`,
		} {
			file += fmt.Sprintf("  - {name: p%02d, table: shop.visits%[1]d, expire: %s}\n", i, kind)
			w.do(fmt.Sprintf(`create table visits%d (like visits including all)`, i))
		}
		w.apply(file)
		judged := 0
		for _, p := range w.inForce() {
			d := &p.Definition
			for n := range 60 {
				cutoff := fmt.Sprintf("(timestamptz '2026-01-02 00:00:00.7+00' + interval '%d days' + interval '%d hours' + interval '%d milliseconds')", n%3, []int{0, 1, 6}[n/3%3], 271*(n-30))
				low := d.LowWater("(" + cutoff + " - interval '10 seconds')")
				if low == nil {
					continue
				}
				judged++
				exact := d.Condition().Exact(cutoff, "("+d.Expire.Bound(cutoff).Value+")::"+low.Type)
				if rows := value[int](w, fmt.Sprintf(`select count(*) from visits t where (%s) is not true and %s <= (%s)::%s`, exact, low.Column, low.Value, low.Type)); rows > 0 {
					t.Errorf("%s: %d rows that are not due at %s lie below the mark", p.Name, rows, cutoff)
				}
			}
		}
		if judged < 500 {
			t.Errorf("%d marks were checked", judged)
		}
	})
}
