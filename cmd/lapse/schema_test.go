package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/schemas"
)

// A role with CREATE on the database makes schema lapse first, with code of its own where init and the other commands look.
func TestNoCommandTouchesASchemaThatSomebodyElseMade(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 15, 18}, func(t *testing.T, db *pgtest.DB) {
		for name, trap := range map[string]struct{ table, column, more string }{
			"a trigger": {"installation", "", `create trigger t before insert or update on lapse.installation
				for each row execute function evil.on_change()`},
			"a rule":             {"installation", "", `create rule r as on update to lapse.installation do also select evil.hit()`},
			"a default":          {"installation", ", d int default evil.hit()", "select"},
			"a generated column": {"installation", ", d int generated always as (evil.hit()) stored", "select"},
			"a view": {"other", "", `create view lapse.installation as select *, evil.hit() as h from lapse.other where evil.hit() > 0;
				grant all on lapse.installation to public`},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t, db.Major)
				mallory := db.NewRole(t, "mallory")
				db.Exec(t, fmt.Sprintf(`grant create on database %s to %s`, db.Name, mallory))
				_, err := db.ConnectAs(t, mallory).PgConn().Exec(t.Context(), fmt.Sprintf(`
					create schema evil; grant usage on schema evil to public;
					create sequence evil.hits; grant all on evil.hits to public;
					create function evil.hit() returns int language plpgsql immutable as $$ begin return nextval('evil.hits'); end $$;
					create function evil.on_change() returns trigger language plpgsql as
					  $$ begin perform nextval('evil.hits'); return new; end $$;
					create schema lapse; grant all on schema lapse to public;
					create table lapse.%s (
					  only_row boolean primary key default true, schema_version int not null, slot name not null, slot_start pg_lsn,
					  audit_required boolean not null default true, keys jsonb not null default '{}',
					  installed_at timestamptz default now() %s);
					grant all on all tables in schema lapse to public;
					insert into lapse.%[1]s (schema_version, slot) values (%[3]d, 'lapse_%[4]s');
					%[5]s;
					alter sequence evil.hits restart`, trap.table, trap.column, schemas.Version, db.Name, trap.more)).ReadAll()
				if err != nil {
					t.Fatal(err)
				}
				// The roles are there, of another database of the cluster.
				if err := access.MakeRoles(t.Context(), db.Connect(t), schemas.RolesFor(schemas.DefaultRolePrefix)); err != nil {
					t.Fatal(err)
				}
				m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\nkafka: { brokers: %q }\n", db.URL, kafkatest.Broker(t).Addr()))
				m.write("policies.yaml", "policies: []\n")
				for _, args := range [][]string{
					{"init", "--keys", "keys"}, {"apply", "-f", "policies.yaml", "--yes"}, {"plan"}, {"policy", "list"},
				} {
					d := m.start(args...)
					if code := d.ended(); code != exitFailed {
						t.Errorf("lapse %s: exit code %d, want %d", strings.Join(args, " "), code, exitFailed)
					}
					said, err := os.ReadFile(d.log)
					if err != nil {
						t.Fatal(err)
					}
					if !strings.Contains(string(said), fmt.Sprintf(`schema lapse in this database belongs to "%s", not to "lapse_owner"`, mallory)) {
						t.Errorf("lapse %s says: %s", strings.Join(args, " "), said)
					}
				}
				var ran bool
				if err := db.Connect(t).QueryRow(t.Context(), `select is_called from evil.hits`).Scan(&ran); err != nil || ran {
					t.Errorf("what was planted ran: %v, %v", ran, err)
				}
			})
		}
	})
}
