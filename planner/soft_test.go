package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

const softly = "    action: {soft: {column: gone}}\n    state: armed"

// Rows that somebody has set before keep what they have, a second run does nothing, and so it is in every shape.
func TestDueRowsGetTheColumnOnceAndStay(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		types := []string{"timestamptz", "timestamp(0)", "date", "boolean not null"}
		shapes := []string{functions.ShapeRange, functions.ShapePick, functions.ShapeHeap, functions.ShapeHeapPick}
		file := "policies:\n"
		for i, kind := range types {
			w.do(fmt.Sprintf(`create table t%d (id bigint primary key, at timestamptz, gone %s, note text)`, i, kind))
			unset, set := "null", "'2020-01-01'"
			if i == 3 {
				unset, set = "false", "true"
			}
			w.do(fmt.Sprintf(`insert into t%d select n, now() - n * interval '1 day', %s from generate_series(1, 60) n`, i, unset))
			w.do(fmt.Sprintf(`update t%d set gone = %s, note = 'before' where id in (10, 40)`, i, set))
			file += fmt.Sprintf("  - {name: p%d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, batch: 7, action: {soft: {column: gone}}, state: armed}\n", i)
		}
		_ = w.armed(file)
		for i := range types {
			p, table := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i))), fmt.Sprintf("t%d", i)
			is := "(gone" + map[bool]string{true: " at time zone 'UTC'"}[i == 1] + ")::timestamptz between now() - interval '2 days' and now() + interval '1 second'"
			switch i {
			case 2:
				is = "gone between (now() at time zone 'UTC')::date - 1 and (now() at time zone 'UTC')::date"
			case 3:
				is = "gone"
			}
			if _, n := w.workOff(p, shapes[i], 7, nil); n != 30 {
				t.Errorf("%s, %s: %d rows were set, want 30", types[i], shapes[i], n)
			}
			all := value[string](w, `select concat_ws(' ', count(*), count(*) filter (where note is null and at <= now() - interval '30 days' and `+is+`),
				count(*) filter (where note is null and `+is+`)) from `+table)
			if all != "60 30 30" {
				t.Errorf("%s: of all rows, due and set, set, are %s", types[i], all)
			}
			if i < 3 && value[int](w, `select count(*) from `+table+` where note = 'before' and gone::date = '2020-01-01'`) != 2 {
				t.Errorf("%s: rows that were set before were set again", types[i])
			}
			if _, n := w.workOff(p, shapes[i], 7, nil); n != 0 {
				t.Errorf("%s: a second run set %d rows", types[i], n)
			}
		}
		ledger := valueOn[string](t, w.admin, `select string_agg(concat_ws(' ', b.policy, (select bool_and(soft) from lapse.batch x where x.policy = b.policy), sum), ', ' order by policy)
			from (select policy, sum((r.by_relation ->> b.target::text)::int) from lapse.batch b join lapse.batch_result r using (batch) group by policy) b`)
		if want := "p0 t 30, p1 t 30, p2 t 30, p3 t 30"; ledger != want {
			t.Errorf("the ledger says %s, want %s", ledger, want)
		}
	})
}

// What refers to a row, what a cascade deletes with it by cascade, and what runs when it is deleted, are of no concern to who sets a column.
func TestASoftActionTakesNothingAlong(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint, at timestamptz, gone timestamptz, primary key (id, at)) partition by range (at)`,
			`create table t_1 partition of t default`, `create table child (id bigint, at timestamptz, foreign key (id, at) references t on delete cascade)`,
			`insert into t select n, now() - n * interval '1 day' from generate_series(1, 60) n`, `insert into child select id, at from t`,
			`create index on t (at, id) where gone is null`)
		w.trigger("child", "after delete", "row")
		w.trigger("t", "before delete", "row")
		p := w.armed(policyText("shop.t", "at", "30 days", softly))
		survey, err := surveyInForce(t.Context(), w.exec, &p, p.Since)
		must(t, err)
		if survey.Trouble != "" || len(survey.Cascades) > 0 || survey.Due != 31 || !strings.Contains(survey.Index, "t_") {
			t.Errorf("the survey says %+v", survey)
		}
		if total := w.deleteAll(p, w.open(&p), 10); total.Deleted != 31 {
			t.Errorf("%d rows were set, want 31", total.Deleted)
		}
		if got := value[string](w, `select concat_ws(' ', (select count(*) from t), (select count(gone) from t), (select count(*) from child))`); got != "60 31 60" {
			t.Errorf("rows, set rows and children are %s", got)
		}
		w.wantDue(&p)
	})
}

func TestAColumnThatASoftActionCannotSetIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create domain soon timestamptz check (value > '2000-01-01')`, `create table other (gone timestamptz primary key)`,
			`create table t (id bigint, at timestamptz, part timestamptz, kept timestamptz not null, made timestamptz generated always as (at) stored,
				one timestamptz, refers timestamptz references other, word text, dom soon, gone timestamptz, primary key (id, part)) partition by range (part)`,
			`create table t_1 partition of t default`, `create unique index on t_1 (one)`)
		for column, want := range map[string]string{
			"nowhere": `shop.t has no column "nowhere": alter table shop.t add column "nowhere" timestamptz`,
			"word":    `column "word" of shop.t is text: a soft action sets a timestamptz, timestamp, date or boolean`,
			"dom":     `column "dom" of shop.t is shop.soon`,
			"made":    `column "made" of shop.t is generated`,
			"kept":    `column "kept" of shop.t is not null, so that no row is without it: alter table shop.t alter column "kept" drop not null`,
			"part":    `column "part" of shop.t is not null`,
			"one":     `column "one" of shop.t is in index t_1_one_idx, and a column that is set must be in no key`,
			"refers":  `column "refers" of shop.t is in foreign key t_refers_fkey`,
			"at":      `column "at" says when rows of shop.t are due, and cannot be what is set when they are`,
		} {
			_, err := w.difference(policyText("shop.t", "at", "30 days", "    action: {soft: {column: "+column+"}}"), false)
			if err == nil || !strings.Contains(err.Error(), "policies.yaml:5:") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", column, err, want)
			}
		}
		for _, where := range []string{`id > 0`, `id > 0 or id < 9`} {
			changes, err := w.difference(policyText("shop.t", "at", "30 days", "    where: '"+where+"'", "    action: {soft: {column: gone}}"), false)
			must(t, err)
			if sql := changes[0].Resolved.Definition.Where.SQL; !strings.HasSuffix(sql, `AND (t."gone" IS NULL))`) || strings.Contains(where, "or") != strings.Contains(sql, "OR") {
				t.Errorf("where %s is %s", where, sql)
			}
		}
	})
}

// What was set piles up. The index that is asked for has none of it, and neither a look nor a plan reads past it.
func TestTheIndexOfASoftPolicyHasWhatIsNotSet(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		for i, c := range []struct{ gone, more, index, warning string }{
			{"timestamptz", "", "", `on shop.t0 ("at", "id") where "gone" is null`},
			{"timestamptz", "", "(at, id)", `has rows that are set already, past which every look reads, or lacks the key; one with the key and without them serves better: create index`},
			{"timestamptz", "", "(at, id) where gone is null", ""},
			{"boolean", "", "(at, id) where gone is not true", ""},
			{"date", ", where: 'id > 0'", "(at, id) where gone is null", ""},
			{"date", ", where: 'id > 0'", "(at, id) where gone is null and id > 0", ""},
		} {
			table := fmt.Sprintf("t%d", i)
			w.do(`create table ` + table + ` (id bigint primary key, at timestamptz, gone ` + c.gone + `)`)
			if c.index != "" {
				w.do(`create index on ` + table + ` ` + c.index)
			}
			file := fmt.Sprintf("  - {name: %s, table: shop.%[1]s, expire: {column: at, after: 30 days}, action: {soft: {column: gone}}%s, state: armed}\n", table, c.more)
			changes, err := w.difference("policies:\n"+file, false)
			must(t, err)
			warnings := strings.Join(changes[0].Warnings, "\n")
			if (c.warning == "") != (warnings == "") || !strings.Contains(warnings, c.warning) {
				t.Errorf("%s %s: it warns %q", c.gone, c.index, warnings)
			}
			if c.warning != "" {
				continue
			}
			_ = w.armed("policies:\n" + file)
			p := w.named(schemas.PolicyName(table))
			look := `select * from ` + functions.DueFunction(p.ID, p.Version) + `(null, null)`
			must(t, runSQL(w.exec, look))
			empty := buffersOf(t, w.exec, look)
			w.do(`insert into ` + table + ` select n, now() - interval '60 days' + n * interval '1 second', ` + map[bool]string{true: "true", false: "now()"}[c.gone == "boolean"] + ` from generate_series(1, 6000) n`)
			w.do(`insert into ` + table + ` select 6000 + n, now() - interval '40 days' from generate_series(1, 3) n`)
			w.do(`analyze ` + table)
			survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			if survey.Due != 3 || !strings.HasPrefix(survey.Index, table+"_at") {
				t.Errorf("%s %s: %d rows are due, found by %s %s", c.gone, c.index, survey.Due, survey.Method, survey.Index)
			}
			must(t, runSQL(w.exec, look))
			if pages := buffersOf(t, w.exec, look); pages > empty+20 {
				t.Errorf("%s %s: a look reads %d pages, and %d of an empty table", c.gone, c.index, pages, empty)
			}
			if total := w.deleteAll(p, w.open(&p), 10); total.Deleted != 3 {
				t.Errorf("%s %s: %d rows were set", c.gone, c.index, total.Deleted)
			}
		}
	})
}

// The one allowed pair: a policy that sets a column, and one that deletes by it.
func TestASoftPolicyAndItsPurgeShareATable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint primary key, at timestamptz, gone timestamptz)`,
			`insert into t select n, now() - n * interval '1 day' from generate_series(1, 60) n`)
		soft := "  - {name: soft, table: shop.t, expire: {column: at, after: 30 days}, action: {soft: {column: gone}}, state: armed}\n"
		purge := "  - {name: purge, table: shop.t, expire: {column: gone, after: 7 days}, state: armed}\n"
		for _, wrong := range []string{
			soft + "  - {name: purge, table: shop.t, expire: {column: at, after: 90 days}}\n",
			"  - {name: purge, table: shop.t, expire: {column: at, after: 90 days}}\n" + soft,
		} {
			if _, err := w.difference("policies:\n"+wrong, false); err == nil || !strings.Contains(err.Error(), "beside a policy that sets \"gone\" there may be one that deletes by it, with expire: { column: gone") {
				t.Errorf("got %v", err)
			}
		}
		w.do(`create table u (id bigint primary key, at timestamptz, gone timestamp)`)
		zoned := strings.ReplaceAll(soft+strings.Replace(purge, "7 days", "7 days, zone: Asia/Tokyo", 1), "shop.t", "shop.u")
		if _, err := w.difference("policies:\n"+zoned, false); err == nil || !strings.Contains(err.Error(), "policy soft sets \"gone\" in UTC, and purge would read it in Asia/Tokyo") {
			t.Errorf("got %v", err)
		}
		_ = w.armed("policies:\n" + soft)
		changes, err := w.difference("policies:\n"+soft+purge, false)
		must(t, err)
		if len(changes) != 2 || changes[1].HeldVersion == 0 {
			t.Errorf("a purge that comes later is armed without a word: %+v", changes)
		}
		must(t, changes[1].Arm())
		must(t, w.write(&changes[1]))
		w.opens()
		s, p := w.named("soft"), w.named("purge")
		if total := w.deleteAll(s, w.open(&s), 100); total.Deleted != 31 {
			t.Errorf("%d rows were set", total.Deleted)
		}
		w.do(`update t set gone = gone - interval '8 days' where id > 50`)
		if total := w.deleteAll(p, w.open(&p), 100); total.Deleted != 10 {
			t.Errorf("%d rows were deleted, want the 10 that were set long ago", total.Deleted)
		}
		// Each is longer or shorter by itself.
		changes, err = w.difference("policies:\n"+strings.Replace(soft, "30 days", "40 days", 1)+strings.Replace(purge, "7 days", "9 days", 1), false)
		must(t, err)
		for _, c := range changes {
			if c.ToState != schemas.Arming || c.HeldVersion != 0 {
				t.Errorf("policy %s, which is longer, becomes %s", c.Policy, c.ToState)
			}
		}
		err = runSQL(w.admin, `update lapse.gate set soft = true where name = 'purge'`)
		if schemas.StateOf(err) != schemas.SQLStateUniqueViolation {
			t.Errorf("two policies that set a column are in force: %v", err)
		}
	})
}

// What would run inside an update is asked of each batch; and nothing but the update may happen under the policy's name.
func TestWhatRunsInsideAnUpdateIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint primary key, at timestamptz, gone timestamptz)`,
			`insert into t select n, now() - n * interval '1 day' from generate_series(1, 60) n`)
		text := policyText("shop.t", "at", "30 days", softly)
		p := w.armed(text)
		b := w.lease(p, w.open(&p))
		w.trigger("t", "after update", "row")
		_, err := w.call(b, nil)
		wantState(t, err, "LP006")
		w.do(`drop trigger audit on t`)
		w.trigger("t", "before delete", "statement")
		w.do(`create rule swallow as on update to t do instead nothing`)
		_, err = w.call(b, nil)
		wantState(t, err, "LP006")
		w.do(`drop rule swallow on t`)
		w.do(`drop trigger audit on t`)
		w.trigger("t", "before update", "row")
		if _, err := w.difference(strings.Replace(text, "30 days", "29 days", 1), false); err == nil || !strings.Contains(err.Error(), "trigger audit on shop.t would run") {
			t.Errorf("got %v", err)
		}
	})
}

// The column comes into a foreign key after the policy was applied: the update would be handed on to the rows that refer to it, with all
// that runs there.
func TestAColumnThatHasComeIntoAForeignKeyIsNotSet(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint, at timestamptz, gone boolean not null default false, primary key (id, at)) partition by range (at)`,
			`create table t_1 partition of t default`, `create table other (gone boolean primary key)`, `insert into other values (true), (false)`,
			`insert into t select n, now() - n * interval '1 day' from generate_series(1, 60) n`)
		p := w.armed(policyText("shop.t", "at", "30 days", softly))
		b := w.lease(p, w.open(&p))
		b.Limit = 3
		_, err := w.call(b, nil)
		must(t, err)
		for _, key := range []struct{ make, undo string }{
			{
				`alter table t_1 add unique (id, gone); create table child (id bigint, gone boolean, foreign key (id, gone) references t_1 (id, gone) on update cascade); insert into child select id, gone from t`,
				`drop table child`,
			},
			{`alter table t add foreign key (gone) references other`, `alter table t drop constraint t_gone_fkey`},
		} {
			must(t, w.script(`set role `+w.app+`; set search_path = shop; `+key.make))
			_, err = w.call(b, nil)
			wantState(t, err, "LP011")
			must(t, w.script(key.undo+`; reset role; reset search_path`))
			_, err = w.call(b, nil)
			must(t, err)
		}
	})
}

// A trigger that is trusted deletes from the table, or updates other rows of it: that would go under the policy's name.
func TestATrustedTriggerDoesNoMoreThanTheUpdate(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w, file := newWorld(t, db), "policies:\n"
		acts := []string{"delete from shop.t0 where id = 1", "update shop.t1 set at = at where id = 1", "new.note = 'set'; return new", "return null"}
		for i, act := range acts {
			table, when := fmt.Sprintf("t%d", i), "after"
			if i >= 2 {
				when = "before"
			}
			w.do(`create table ` + table + ` (id bigint primary key, at timestamptz, gone timestamptz, note text)`)
			w.do(`insert into ` + table + ` select n, now() - n * interval '1 day' from generate_series(1, 60) n`)
			w.do(`create function act` + table + `() returns trigger language plpgsql as $$ begin if pg_trigger_depth() = 1 then ` + act + `; end if; return null; end $$`)
			w.do(`create trigger act ` + when + ` update on ` + table + ` for each row execute function act` + table + `()`)
			file += fmt.Sprintf("  - {name: p%d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, triggers: trusted, action: {soft: {column: gone}}, state: armed}\n", i)
		}
		_ = w.armed(file)
		for i, act := range acts {
			table, p := fmt.Sprintf("t%d", i), w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			got, err := w.call(w.lease(p, w.open(&p)), nil)
			switch i {
			case 0, 1:
				wantState(t, err, "LP008")
				if n := value[int](w, `select count(*) filter (where gone is null) from `+table); n != 60 {
					t.Errorf("%s: of 60 rows %d are left and not set", act, n)
				}
			default:
				must(t, err)
				if want := int64(31 * (3 - i)); got.Deleted != want || value[int64](w, `select count(gone) from `+table) != want {
					t.Errorf("%s: %d rows were set, want %d", act, got.Deleted, want)
				}
			}
		}
	})
}

// Rows that somebody refers to meanwhile are set all the same, in each shape, and who refers to them does not wait.
func TestWhoRefersToARowDoesNotWaitWhileItIsSet(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w, file := newWorld(t, db), "policies:\n"
		shapes := []string{functions.ShapeRange, functions.ShapePick, functions.ShapeHeapPick}
		for i := range shapes {
			w.do(fmt.Sprintf(`create table t%d (id bigint primary key, at timestamptz, gone timestamptz)`, i))
			w.do(fmt.Sprintf(`create table child%d (id bigint references t%[1]d)`, i))
			w.do(fmt.Sprintf(`insert into t%d select n, now() - interval '40 days' from generate_series(1, 3) n`, i))
			file += fmt.Sprintf("  - {name: p%d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, action: {soft: {column: gone}}, state: armed}\n", i)
		}
		_ = w.armed(file)
		other := w.db.ConnectAs(t, w.app)
		for i, shape := range shapes {
			referring, err := w.owner.Begin(t.Context())
			must(t, err)
			_, err = referring.Exec(t.Context(), fmt.Sprintf(`insert into shop.child%d values (1)`, i))
			must(t, err)
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			b := w.lease(p, w.open(&p))
			b.Shape = shape
			must(t, pgx.BeginFunc(t.Context(), w.exec, func(tx pgx.Tx) error {
				got, err := w.callIn(tx, b, nil)
				must(t, err)
				if got.Deleted != 3 {
					t.Errorf("%s: %d rows were set", shape, got.Deleted)
				}
				return runSQL(other, fmt.Sprintf(`set lock_timeout = '5s'; insert into shop.child%d values (2)`, i))
			}))
			must(t, referring.Rollback(t.Context()))
		}
	})
}

// The application updates the row while the batch waits for it: a row that is not due any more is not set, and neither is one that
// was set meanwhile.
func TestARowThatIsUpdatedInTheSameMomentIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint primary key, at timestamptz, gone timestamptz)`,
			`insert into t select n, now() - interval '40 days' from generate_series(1, 3) n`)
		p := w.armed(policyText("shop.t", "at", "30 days", softly))
		b := w.lease(p, w.open(&p))
		tx, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `update t set at = now() where id = 1`)
		must(t, err)
		_, err = tx.Exec(t.Context(), `update t set gone = '2020-01-01' where id = 2`)
		must(t, err)
		var got result
		done := inBackground(func() error {
			var err error
			got, err = w.call(b, nil)
			return err
		})
		w.waitForLock()
		must(t, tx.Commit(t.Context()))
		must(t, <-done)
		if got.Deleted != 1 {
			t.Errorf("%d rows were set, want 1", got.Deleted)
		}
		if rows := value[string](w, `select string_agg(coalesce((gone > '2021-01-01')::text, 'live'), ' ' order by id) from t`); rows != "live false true" {
			t.Errorf("the rows are %s", rows)
		}
	})
}
