package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// A login that can become the catalog's owner replaces a function that commands call.
func TestNoCommandCallsAFunctionThatTheCatalogsOwnerChanged(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, `create table public.sessions (id bigint primary key, last_seen timestamptz); create index on public.sessions (last_seen, id);
			create schema evil; create table evil.hits (who text); grant usage on schema evil to public; grant all on evil.hits to public`)
		d := newDesk(t, db, db.URL)
		policies := filepath.Join(t.TempDir(), "policies.yaml")
		const file = "policies: [{ name: sessions, table: public.sessions, expire: { column: last_seen, after: 30 days } }]\n"
		if err := os.WriteFile(policies, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		mallory := db.NewRole(t, "mallory")
		db.Exec(t, `grant lapse_owner to `+mallory)
		_, err := db.ConnectAs(t, mallory).PgConn().Exec(t.Context(), `set role lapse_owner; alter function lapse.leaves(oid) rename to former;
			create function lapse.leaves(root oid) returns table (relation oid, kind "char", name text) language plpgsql as $$
			begin
			  insert into evil.hits values (session_user);
			  return query select * from lapse.former(root);
			end $$`).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		d.env["LAPSE_SUPERUSER"] = "allow"
		for _, args := range [][]string{
			{"apply", "-f", policies, "--dry-run"}, {"apply", "-f", policies, "--yes"}, {"init", "--keys", d.env["LAPSE_KEYS"]}, {"policy", "list"},
		} {
			code, _, log := d.lapse(args...)
			if code != exitFailed || !strings.Contains(log, "function lapse.leaves") || !strings.Contains(log, "drop schema lapse") {
				t.Errorf("lapse %s: exit code %d, says: %s", strings.Join(args, " "), code, log)
			}
		}
		var who string
		if err := db.Connect(t).QueryRow(t.Context(), `select coalesce(string_agg(distinct who, ', '), '') from evil.hits`).Scan(&who); err != nil || who != "" {
			t.Errorf("what was planted ran as %s: %v", who, err)
		}
	})
}
