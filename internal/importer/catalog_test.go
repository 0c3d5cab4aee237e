package importer

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// configured are tables as pg_partman 4 and 5 and pg_ttl_index 3 have them, as far as they are read.
const configured = logs + `;
	create schema partman;
	create table partman.part_config (parent_table text primary key, control text, epoch text default 'none', partition_interval text, retention text, retention_schema text,
	  retention_keep_table boolean default true);
	create table app.days (id int, at timestamptz not null) partition by range (at);
	create table app.months (id int, day date not null) partition by range (day);
	create table app.unix (id int, e bigint not null) partition by range (e);
	insert into partman.part_config values
	  ('app.days', 'at', 'none', '1 day', '30 days', null, false), ('app.months', 'day', 'none', '1 mon', '3 months', null, false),
	  ('app.unix', 'e', 'seconds', 'P1W', '90 days', null, false), ('app.parted', 'at', 'none', '1 day', null, null, false),
	  ('app.ids', 'id', 'none', '10000', '100000', null, false), ('app.kept', 'at', 'none', '1 day', '30 days', null, true),
	  ('app.moved', 'at', 'none', '1 day', '30 days', 'old', false), ('app.gone', 'at', 'none', '1 day', '30 days', null, false),
	  ('app.part', 'at', 'none', '1 day', '30 days', null, false), ('app.text', 'status', 'none', '1 day', 'a while', null, false);
	create table ttl_index_table (schema_name text, table_name text, column_name text, expire_after_seconds int, active boolean, batch_size int, soft_delete_column text);
	insert into ttl_index_table values ('app', 'logs', 'created_at', 2592000, true, 100000, null), ('app', 'Sess Ions', 'last_seen', 1800, false, 500, 'gone'),
	  ('app', 'other', 'nothing', 5, true, 1, null)`

func TestConfigurationsOfExtensionsBecomePolicies(t *testing.T) {
	t.Parallel()
	s := newSite(t, pgtest.New(t, pgtest.Newest(t)), "postgres", configured)
	s.usual.Zone, s.usual.assumedZone = utc, true
	for _, c := range []struct {
		from string
		want []string
	}{
		{"pg_partman", []string{
			"table: 'app.days' expire: { column: 'at', after: 31 days } action: drop_partition",
			"there is no table app.gone", "no time", "keeps them as tables",
			"table: 'app.months' expire: { column: 'day', after: 123 days } action: drop_partition", "moves old partitions to schema old",
			"is a partition", "", "not both intervals", "table: 'app.unix' expire: { column: 'e', after: 97 days, epoch: 's' } action: drop_partition",
		}},
		{"pg_ttl_index", []string{
			`table: 'app."Sess Ions"' expire: { column: 'last_seen', after: '00:30:00' } every: 1 minute batch: 500 action: { soft: { column: 'gone' } }`,
			"is of a type that says no time", "table: 'app.logs' expire: { column: 'created_at', after: 30 days } every: 1 minute batch: 50000",
		}},
	} {
		source, _ := Find(c.from)
		items, err := source.Catalog(t.Context(), s.Server)
		must(t, err)
		if len(items) != len(c.want) {
			t.Fatalf("%s: %d items, not %d", c.from, len(items), len(c.want))
		}
		for i := range items {
			if got := policyLine(&items[i]); items[i].Policy != nil && got != c.want[i] || !strings.Contains(got, c.want[i]) {
				t.Errorf("%s: %s\n got %s\nwant %s", c.from, items[i].Origin, got, c.want[i])
			}
		}
	}
	if _, err := timescaleCatalog(t.Context(), s.Server); err == nil || !strings.Contains(err.Error(), "has no jobs") {
		t.Errorf("without TimescaleDB: %v", err)
	}
}
