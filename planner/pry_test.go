package planner

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// The owner of what a trusted trigger calls may replace it. It runs as the deleter, in the executor's session, and yet learns
// nothing about which rows of other owners' tables are held or in quarantine.
func TestATrustedTriggerDoesNotLearnOfOtherOwnersTables(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table people (id int primary key, at timestamptz)`,
			`create table loot (line text)`,
			`create function pry(sql text) returns void language plpgsql as 'begin execute sql; insert into shop.loot values (sql); exception when others then null; end'`,
			fmt.Sprintf(`create function ask() returns trigger language plpgsql as $$
			begin
			  perform shop.pry('select lapse.quarantined_keys(2, 1, ''shop.people''::regclass, now(), %[1]s)');
			  perform shop.pry('select lapse.inspect_leaf(2, 1, ''shop.people''::regclass, ''shop.people'', %[1]s)');
			  perform shop.pry('select lapse.held_rows(2, 1, %[1]s)');
			  perform shop.pry('select lapse.held_rows(1, 1, %[1]s)');
			  perform shop.pry('select lapse.held_keys(7, %[1]s)');
			  perform shop.pry('select 1');
			  return old;
			end $$`, schemas.CallerProof),
			`create trigger ask before delete on sessions for each row execute function ask()`)
		w.fill("sessions", 2)
		must(t, runSQL(w.admin, `alter table shop.people owner to `+db.NewRole(t, "other")))
		w.apply("policies:\n" +
			"  - {name: p, table: shop.sessions, expire: {column: last_seen, after: 30 days}, triggers: trusted, state: armed}\n" +
			"  - {name: q, table: shop.people, expire: {column: at, after: 30 days}, state: armed}\n")
		p := w.named("p")
		w.arm(p.ID)
		p = w.named("p")
		w.do(`grant usage on schema shop to ` + w.deleter())
		w.do(`grant insert on loot to ` + w.deleter())
		must(t, runSQL(w.admin, `set session_replication_role = replica`))
		must(t, runSQL(w.admin, `insert into lapse.hold_key (hold, key) values (7, '{4711}')`)) // of a hold on another owner's table
		must(t, runSQL(w.admin, `reset session_replication_role`))
		q := w.named("q")
		w.looks(&q) // so that its leaf is known, and only the row in quarantine is nobody's business
		must(t, runSQL(w.admin, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			values (2, 'shop.people'::regclass, sha256(''), '{4711}', '23503', now() + interval '1 day')`))
		b := w.lease(p, w.open(&p))
		if got, err := w.call(b, nil); err != nil || got.Deleted != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got := value[string](w, `select string_agg(distinct line, ', ') from loot`); got != "select 1, select lapse.held_rows(1, 1, "+schemas.CallerProof+")" {
			t.Errorf("it could ask: %s", got)
		}
	})
}
