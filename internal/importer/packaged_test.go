package importer

import (
	"context"
	"path/filepath"
	"testing"

	"lapse/internal/pgtest"
)

// real is what the extensions have of their own; pg_cron is in the server's database "postgres".
const real = `
	create extension pg_cron;
	create schema partman;
	create extension pg_partman schema partman;
	create table public.events (id bigint primary key, event_time timestamptz);
	create table public.readings (id int, at timestamptz not null) partition by range (at);
	select partman.create_parent('public.readings', 'at', 'native', 'daily');
	update partman.part_config set retention = '30 days', retention_keep_table = false;
	select cron.schedule('weekly', '30 3 * * 6', 'DELETE FROM events WHERE event_time < now() - interval ''1 week''')`

// The distribution's own pg_cron and pg_partman, and not tables like theirs.
func TestTheRealExtensionsAreRead(t *testing.T) {
	t.Parallel()
	if servers, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err != nil || len(servers) != 1 {
		t.Skip("the distribution has not one server")
	}
	for _, library := range []string{"pg_cron.so", "pg_partman_bgw.so"} {
		if found, err := filepath.Glob("/usr/lib/postgresql/15/lib/" + library); err != nil || len(found) == 0 {
			t.Skip("pg_cron and pg_partman are not there: apt-get install postgresql-15-cron postgresql-15-partman")
		}
	}
	db := *pgtest.Packaged(t, pgtest.Settings(map[string]string{"shared_preload_libraries": "pg_cron", "cron.database_name": "postgres"}))
	db.Name, db.URL = "postgres", db.Server.URL("postgres", "postgres")
	s := newSite(t, &db, "postgres", real)
	s.usual.Zone, s.usual.assumedZone = utc, true
	for want, read := range map[string]func(context.Context, *Server) ([]Item, error){
		"table: 'public.readings' expire: { column: 'at', after: 31 days } action: drop_partition":      partmanCatalog,
		"table: 'public.events' expire: { column: 'event_time', after: 7 days } cron: '30 3 * * 6 UTC'": cronCatalog,
	} {
		items, err := read(t.Context(), s.Server)
		must(t, err)
		if len(items) != 1 || policyLine(&items[0]) != want {
			t.Errorf("%d items; want %s", len(items), want)
		}
	}
}
