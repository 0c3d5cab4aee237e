package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// inside is a table with a trusted trigger, another table of the same owner, and a policy on each.
type inside struct {
	t      *testing.T
	db     *pgtest.DB
	m      *machine
	broker *kafkaserver.Server
	name   string // topics begin with it
}

func newInside(t *testing.T, db *pgtest.DB) *inside {
	t.Helper()
	in := &inside{t: t, db: db, broker: kafkatest.Broker(t), name: kafkatest.Name()}
	owner := db.NewRole(t, "owner")
	db.Exec(t, `create table public.sessions (id bigint primary key, last_seen timestamptz)`, `create index on public.sessions (last_seen, id)`,
		`create table public.elsewhere (id bigint primary key, at timestamptz)`, `create index on public.elsewhere (at, id)`,
		`insert into public.elsewhere select generate_series(1, 100)`,
		`create table public.orders (id bigint, act text)`,
		`create function public.act() returns trigger language plpgsql as $f$
		   declare
		     act text;
		   begin
		     for act in select o.act from orders o where o.id = old.id loop execute act; end loop;
		     return old;
		   end $f$`,
		`create trigger act before delete on public.sessions for each row execute function public.act()`,
		`alter table public.sessions owner to `+owner, `alter table public.elsewhere owner to `+owner,
		`alter table public.orders owner to `+owner, `alter function public.act() owner to `+owner)
	in.m = newMachine(t, fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
`, db.URL, db.As("lapse_executor"), db.As("lapse_auditor"), in.broker.Addr(), in.name))
	in.m.lapse("init", "--keys", "keys")
	in.m.lapse("apply", "--yes", "-f", in.m.write("policies.yaml", `
policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 30 days }
    every: 0.1 seconds
    triggers: { trusted: true, search_path: public }
    state: armed
  - { name: elsewhere-30d, table: public.elsewhere, expire: { column: at, after: 30 days } }
`))
	in.m.lapse("audit", "--once")
	return in
}

// due makes rows that are due, and has the trigger act at the first of them. It is the trigger that the policy was applied to.
func (in *inside) due(first, last int, act string) {
	in.t.Helper()
	in.db.Exec(in.t, fmt.Sprintf(`insert into public.orders values (%d, $act$%s$act$)`, first, act),
		fmt.Sprintf(`insert into public.sessions select n, now() - interval '60 days' + n * interval '1 second' from generate_series(%d, %d) n`, first, last))
}

// run runs all policies once, with an audit before and after it, and returns what was said and how many of those rows are left.
func (in *inside) run(code, first, last int) (said string, left int) {
	in.t.Helper()
	in.m.lapse("audit", "--once")
	said = in.m.exits(code, "run", "--once")
	in.m.lapse("audit", "--once")
	return said, fixture.One[int](in.t, in.db.Connect(in.t), `select count(*)::int from public.sessions where id between $1 and $2`, first, last)
}

// causes are those of all events, by table and key.
func (in *inside) causes() map[string]string {
	in.t.Helper()
	found := map[string]string{}
	for _, topic := range []string{in.name + ".system", in.name + ".user"} {
		for _, record := range kafkatest.ReadAllOn(in.t, in.broker, topic) {
			if record.Header("lapse-op") != "delete" {
				continue
			}
			var key struct{ ID string }
			if err := json.Unmarshal(record.Key, &key); err != nil {
				in.t.Fatal(err)
			}
			row := record.Header("lapse-table") + " " + key.ID
			if found[row] != "" || (topic == in.name+".system") != (record.Header("lapse-cause") == "system") {
				in.t.Errorf("%s is %q, and %q in %s", row, found[row], record.Header("lapse-cause"), topic)
			}
			found[row] = record.Header("lapse-cause")
		}
	}
	return found
}

func each(table string, first, last int, cause string) map[string]string {
	rows := map[string]string{}
	for id := first; id <= last; id++ {
		rows[fmt.Sprint(table, " ", id)] = cause
	}
	return rows
}

// What code of the table's owner does within a true batch, and what is done to the deletion function: nothing of it is the
// system's, and without a superuser's help the ledger takes no row of theirs.
func TestWhatIsDoneWithinATrueBatchIsNotTheSystems(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		in := newInside(t, db)
		want := map[string]string{}
		wants := func(more ...map[string]string) {
			t.Helper()
			for _, rows := range more {
				maps.Copy(want, rows)
			}
			if got := in.causes(); !maps.Equal(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
		}
		const forge = `insert into lapse.batch select (jsonb_populate_record(b, jsonb_build_object('batch', gen_random_uuid()))).*
			from lapse.batch b where b.xid = pg_current_xact_id()`

		in.due(1, 9, `delete from elsewhere where id <= 3`)
		if _, left := in.run(exitDone, 1, 9); left != 0 {
			t.Errorf("%d rows are left", left)
		}
		wants(each("public.sessions", 1, 9, "system"), each("public.elsewhere", 1, 3, "unverified"))

		in.due(11, 19, forge) // with the deleter's rights
		_, left := in.run(exitPerson, 11, 19)
		ledger := fixture.One[int](t, db.Connect(t), `select count(*)::int from lapse.batch b where not exists (select from lapse.batch_result r where r.batch = b.batch)`)
		if left != 1 || ledger != 0 {
			t.Errorf("%d rows are left, want the one at which the trigger is refused; %d rows of the ledger are forged", left, ledger)
		}
		wants(each("public.sessions", 12, 19, "system"))

		db.Exec(t, `create function public.forge() returns void security definer language sql as $f$ `+forge+` $f$`)
		in.due(21, 29, `select forge()`)
		in.run(exitPerson, 21, 29) // the row in quarantine is still there
		wants(each("public.sessions", 21, 29, "unverified"))

		in.due(31, 39, `select`)
		db.Exec(t, `do $do$
			declare
			  text text := pg_get_functiondef('lapse.delete_1_1'::regproc);
			begin
			  execute replace(text, 'interval ''30 days''', 'interval ''1 day''');
			end $do$`)
		if said, left := in.run(exitFailed, 31, 39); !strings.Contains(said, "lapse.delete_1_1") || left != 9 {
			t.Errorf("by another function: %d rows left of 9, %s", left, said)
		}
		wants()
		if n := strings.Count(in.m.lapse("events", "--cause", "unverified", "--json"), "\n"); n != 12 {
			t.Errorf("%d unverified events, want 12", n)
		}
	})
}
