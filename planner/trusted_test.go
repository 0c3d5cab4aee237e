package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/schemas"
)

func trustedPolicy(more string) string {
	return policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    triggers: "+more)
}

// historyTrigger keeps what is deleted, by unqualified names.
const historyTrigger = `create table history (id bigint, gone_at timestamptz default now());
	create function keep() returns trigger language plpgsql as $$ begin insert into history (id) values (old.id); return old; end $$;
	create trigger audit after delete on sessions for each row execute function keep()`

func TestATrustedTriggerWritesItsHistory(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 20)
		plant(w, historyTrigger)
		w.do(`create table later (id bigint)`)
		w.do(`create function late() returns trigger language plpgsql as $$ begin insert into later values (old.id); return null; end $$`)
		w.do(`create constraint trigger late after delete on sessions deferrable initially deferred for each row execute function late()`)
		_, err := w.difference(policyText("shop.sessions", "last_seen", "30 days"), false)
		if err == nil || !strings.Contains(err.Error(), "write triggers: trusted if it only writes elsewhere") {
			t.Errorf("without trust apply says %v", err)
		}
		changes := w.apply(trustedPolicy(`{trusted: true, search_path: "shop, public"}`))
		if diff := changes[0].Diff(); !strings.Contains(diff, `trigger "audit" on shop.sessions`) || !strings.Contains(diff, `trigger "late"`) {
			t.Errorf("the difference does not show what is trusted:\n%s", diff)
		}
		w.arm(1)
		p := w.named("p")
		due := value[int64](w, `select count(*) from sessions where last_seen < now() - interval '30 days'`)
		if total := w.deleteAll(p, w.open(&p), 7); total.Deleted != due || due == 0 {
			t.Errorf("%d of %d rows were deleted", total.Deleted, due)
		}
		if h, l := value[int64](w, `select count(*) from history`), value[int64](w, `select count(*) from later`); h != due || l != due {
			t.Errorf("the triggers wrote %d and %d rows of %d", h, l, due)
		}
		if again := w.apply(trustedPolicy(`{trusted: true, search_path: "shop, public"}`)); again[0].Kind != change.Unchanged {
			t.Errorf("applied again it is %s: %v", again[0].Kind, again[0].Fields)
		}
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if survey.Trouble != "" {
			t.Errorf("the survey says %s", survey.Trouble)
		}
	})
}

// What was trusted is what was found: whatever is other than that stops the next batch, and apply shows it.
func TestWhatWasTrustedIsHeldToWhatApplySaw(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 20)
		plant(w, historyTrigger)
		p := w.armed(trustedPolicy(`{trusted: true, search_path: shop}`))
		const keep = `create or replace function keep() returns trigger language plpgsql as $$ begin insert into history (id) values (old.id); return old; end $$`
		b := w.lease(p, w.open(&p))
		b.Limit = 1
		for name, c := range map[string]struct{ do, undo string }{
			"another body":         {strings.Replace(keep, "values (old.id)", "values (-old.id)", 1), keep},
			"other rights":         {`alter function keep() security definer`, `alter function keep() security invoker`},
			"another setting":      {`alter function keep() set search_path = public`, `alter function keep() reset search_path`},
			"a condition":          {`drop trigger audit on sessions; create trigger audit after delete on sessions for each row when (old.id > 3) execute function keep()`, `drop trigger audit on sessions; create trigger audit after delete on sessions for each row execute function keep()`},
			"a second trigger":     {`create trigger planted after delete on sessions for each row execute function keep()`, `drop trigger planted on sessions`},
			"a rule":               {`create rule planted as on delete to sessions do also select 1`, `drop rule planted on sessions`},
			"always":               {`alter table sessions enable always trigger audit`, `alter table sessions enable trigger audit`},
			"an index's function":  {`create function f(v bigint) returns bigint language plpgsql immutable as 'begin return v; end'; create index planted on sessions (f(id))`, `drop index planted; drop function f(bigint)`},
			"a trigger of a child": {`create table clicks (id int primary key, session bigint references sessions on delete set null); create trigger planted after update on clicks for each row execute function keep()`, `drop table clicks`},
		} {
			plant(w, c.do)
			if _, err := w.call(b, nil); schemas.StateOf(err) != schemas.SQLStateTriggers {
				t.Errorf("%s: %v", name, err)
			}
			survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			if survey.Trouble == "" {
				t.Errorf("%s: the survey sees nothing", name)
			}
			plant(w, c.undo)
			if _, err := w.call(b, nil); err != nil {
				t.Errorf("without %s: %v", name, err)
			}
		}
		plant(w, strings.Replace(keep, "values (old.id)", "values (-old.id)", 1))
		changes, err := w.difference(trustedPolicy(`{trusted: true, search_path: shop}`), false)
		must(t, err)
		if changes[0].Kind != change.Changed || len(changes[0].Fields) != 1 || changes[0].Fields[0].Field != "trusted code" {
			t.Errorf("of another body the difference says %+v", changes[0].Fields)
		}
	})
}

// What a trusted trigger can do at worst. It has the rights of the table's owner and no more; a batch in which it
// deletes from the table itself is undone, and what it does to the session ends with the statement.
func TestATrustedTriggerThatMisbehaves(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.do(`create function act() returns trigger language plpgsql as 'begin return old; end'`)
		for i, c := range []struct {
			name, when, body, state string
			left                    int // of five rows that are due and five that are not
		}{
			{name: "deletes what is not due", body: `delete from shop.sessions where id = old.id + 5; return old;`, state: "LP008", left: 10},
			{name: "deletes what is due", body: `delete from shop.sessions where last_seen < now() - interval '30 days'; return old;`, left: 5},
			{name: "suppresses the row", when: "before", body: `return null;`, left: 10},
			{name: "sets what a session has", body: `perform set_config('search_path', 'evil', false), set_config('timezone', 'Asia/Tokyo', false), set_config('row_security', 'on', false); return old;`, left: 5},
			{name: "raises", body: `raise exception 'no'; return old;`, state: "P0001", left: 10},
			{name: "writes into the ledger", body: `insert into lapse.batch_result values (gen_random_uuid(), 1, 1, '{}'); return old;`, state: "42501", left: 10},
			{name: "moves a shard", body: `update lapse.shard set done = true; return old;`, state: "42501", left: 10},
			{name: "becomes another role", body: `set local role ` + testRoles.Owner + `; return old;`, state: "42501", left: 10},
			{name: "calls a function of ours", body: `perform lapse.leave(null, null, null, null, null, true, null); return old;`, state: "LP018", left: 10},
		} {
			w.do(`drop trigger if exists audit on sessions`)
			w.do(`delete from sessions`)
			w.do(`insert into sessions select n, case when n <= 5 then now() - interval '1 year' else now() end from generate_series(1, 10) n`)
			w.do(`create or replace function act() returns trigger language plpgsql as 'begin ` + strings.ReplaceAll(c.body, "'", "''") + ` end'`)
			w.do(fmt.Sprintf(`create trigger audit %s delete on sessions for each row execute function act()`, map[bool]string{true: "before", false: "after"}[c.when == "before"]))
			p := w.armed(trustedPolicy(map[bool]string{true: "trusted", false: "{trusted: true, search_path: shop}"}[i%2 == 0]))
			b := w.lease(p, w.open(&p))
			got, err := w.call(b, nil)
			if state := schemas.StateOf(err); state != c.state {
				t.Errorf("%s: %v, want %q", c.name, err, c.state)
			}
			if left := value[int](w, `select count(*) from sessions`); left != c.left {
				t.Errorf("%s: %d rows are left, want %d", c.name, left, c.left)
			}
			if went := got.ByRelation[fmt.Sprint(w.oid("shop.sessions"))]; err == nil && went != int64(10-c.left) {
				t.Errorf("%s: %d rows are counted", c.name, went)
			}
			must(t, runSQL(w.admin, `delete from lapse.shard where not done`))
		}
	})
}

// A child's trigger runs with the rights of the parent's deleter on 14 to 17, for any owner of the child.
func TestATriggerOfAnotherOwnersTableIsNotTrusted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		other := db.NewRole(t, "other")
		w := newWorld(t, db, sessions)
		plant(w, `create table clicks (id int primary key, session bigint references sessions on delete cascade);
			create function keep() returns trigger language plpgsql as 'begin return old; end';
			create trigger audit after delete on clicks for each row execute function keep()`)
		_, err := w.difference(trustedPolicy("trusted"), false)
		must(t, err)
		must(t, runSQL(w.admin, `alter table shop.clicks owner to `+other))
		_, err = w.difference(trustedPolicy("trusted"), false)
		if err == nil || !strings.Contains(err.Error(), "belongs to another owner than shop.sessions") {
			t.Errorf("got %v", err)
		}
	})
}
