package planner

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// kept are the entries of the checks, but for their numbers.
func (w *world) kept() string {
	w.t.Helper()
	return valueOn[string](w.t, w.admin, `select coalesce(string_agg(concat_ws(' ', e.policy_id, e.name, e.touched, e.signature, e.relations, e.parents, e.functions, e.operators, e.types), E'\n' order by e.policy_id, e.name), '')
		from lapse.examined e`)
}

// Leaves that are checked together are each checked as alone: nothing of one's surroundings comes into another's entry, and one that is refused
// is named, and leaves no entry of those beside it.
func TestLeavesThatAreCheckedTogetherAreCheckedAsAlone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create domain number as bigint check (value > 0)`, `create type color as enum ('red')`,
			`create table sessions (id bigint primary key, last_seen timestamptz not null, n number, c color, parent bigint) partition by range (id)`,
			`create table sessions_1 partition of sessions for values from (0) to (1000)`,
			`create table sessions_2 partition of sessions for values from (1000) to (2000) partition by range (id)`,
			`create table sessions_21 partition of sessions_2 for values from (1000) to (1500)`,
			`create table sessions_22 partition of sessions_2 default`,
			`create table sessions_3 partition of sessions default`,
			`alter table sessions add foreign key (parent) references sessions on delete set null`,
			`create table clicks (id bigint primary key, session bigint references sessions on delete cascade)`,
			`create table of_one (id bigint primary key, session bigint references sessions_1 on delete cascade)`,
			`create table later (id bigint primary key, session bigint references sessions on delete cascade) partition by list (id)`,
			`create table stays (id bigint primary key, session bigint references sessions_21)`,
			`create index on sessions_3 (last_seen)`, `create statistics wide on n, c from sessions_1`,
			`create table carts (id bigint primary key, at timestamptz) partition by hash (id)`,
			`create table carts_0 partition of carts for values with (modulus 2, remainder 0)`,
			`create table carts_1 partition of carts for values with (modulus 2, remainder 1)`,
			`create table notes (id bigint, at timestamptz, gone timestamptz, session bigint default 3 references stays on update cascade, primary key (id)) partition by hash (id)`,
			`create table notes_0 partition of notes for values with (modulus 2, remainder 0)`,
			`create table notes_1 partition of notes for values with (modulus 2, remainder 1)`,
			`create table base (id bigint primary key, tag text)`,
			`create table registry (id bigint primary key references base on delete cascade, until timestamptz)`,
			`create table beyond (id bigint primary key, registry bigint references registry on delete cascade)`)
		w.armed(`policies:
  - {name: sessions, table: shop.sessions, expire: {column: last_seen, after: 30 days}, state: armed}
  - {name: carts, table: shop.carts, expire: {column: at, after: 30 days}, state: armed}
  - {name: notes, table: shop.notes, expire: {column: at, after: 30 days}, action: {soft: {column: gone}}, state: armed}
  - {name: base, table: shop.base, expire: {sidecar: shop.registry, column: until}, state: armed}
`)
		const acquaint = `select lapse.acquaint(p.id, p.version, %, null) from lapse.policy p cross join lateral (select array_agg(l.relation) as leaves from lapse.leaves(p.table_oid) l) l`
		together := strings.Replace(acquaint, "%", "l.leaves", 1)
		alone := strings.Replace(acquaint, "%", "array[o.leaf]", 1) + ` cross join lateral unnest(l.leaves) o(leaf)`
		must(t, runSQL(w.admin, `delete from lapse.examined`))
		must(t, runSQL(w.admin, together))
		want := w.kept()
		must(t, runSQL(w.admin, `delete from lapse.examined`))
		must(t, runSQL(w.admin, alone))
		if got := w.kept(); got != want || strings.Count(want, "\n") != 8 {
			t.Errorf("alone the entries are\n%s\nand together\n%s", got, want)
		}
		must(t, runSQL(w.admin, `delete from lapse.examined`))
		w.do(`create function fires() returns trigger language plpgsql as 'begin return old; end'`)
		w.do(`create function own(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'`)
		for leaf, how := range map[string][2]string{
			"sessions_22": {`create trigger x after delete on sessions_22 for each row execute function fires()`, `drop trigger x on sessions_22`},
			"carts_1":     {`create index x on carts_1 (own(id))`, `drop index x`},
		} {
			w.do(how[0])
			err := runSQL(w.admin, together)
			wantState(t, err, schemas.SQLStateTriggers)
			if err == nil || !strings.Contains(err.Error(), " on shop."+leaf+" would run inside the deletion from shop."+leaf+",") {
				t.Errorf("%s: got %v", how[0], err)
			}
			if got := w.kept(); got != "" {
				t.Errorf("%s: kept are %s", how[0], got)
			}
			w.do(how[1])
		}
		must(t, runSQL(w.admin, together))
	})
}
