package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// asksForMoves writes a policy that tells moves of a table from deletions, or no longer does, as apply does.
func (r *rig) asksForMoves(t *testing.T, table string, version int, moves string) {
	t.Helper()
	r.db.Exec(t, fmt.Sprintf(`insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec)
			select 7, %[2]d, 'p', '%[1]s'::regclass, '%[1]s', '[]', jsonb_build_object('moves', nullif('%[3]s', ''))`, table, version, moves),
		fmt.Sprintf(`insert into lapse.gate (policy_id, name, table_oid, version, state) values (7, 'p', '%s'::regclass, %d, 'observing')
			on conflict (policy_id) do update set version = excluded.version`, table, version))
}

// happened says what the user topic has, in the order of the log.
func (r *rig) happened(t *testing.T) []string {
	t.Helper()
	events := map[string]string{}
	for _, record := range r.read(t, r.settings.User) {
		var e struct {
			Mods []struct {
				New map[string]string `json:"new_values"`
			}
			Lapse struct {
				MovedTo string `json:"moved_to"`
			}
		}
		if err := json.Unmarshal(record.Value, &e); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s %s %s", record.Header("lapse-op"), strings.TrimPrefix(record.Header("lapse-table"), "public."), record.Key)
		if e.Lapse.MovedTo != "" {
			text += " to " + strings.TrimPrefix(e.Lapse.MovedTo, "public.") + fmt.Sprint(e.Mods[0].New)
		}
		events[record.Header("lapse-lsn")+record.Header("lapse-seq")] = text
	}
	var all []string
	for _, at := range slices.Sorted(maps.Keys(events)) {
		all = append(all, events[at])
	}
	return all
}

// Rows are moved, deleted, and both, in every way that there is. The events are exactly so, whether an auditor is started again between any
// two heartbeats or one reads everything at once.
func TestMovesAndDeletionsAreToldApartByEveryReader(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		twin := *r
		name := kafkatest.Name()
		twin.settings.Slot, twin.settings.System, twin.settings.User, twin.settings.Log = r.settings.Slot+"_twin", name+".system", name+".user", name+".log"
		r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, twin.settings.Slot))
		r.db.Exec(t, `create table parts (id bigint, day int, "Kind, of" text, body text, primary key (id, day, "Kind, of")) partition by range (day)`,
			`create table parts_1 partition of parts for values from (0) to (10)`,
			`create table parts_2 partition of parts for values from (10) to (20) partition by list ("Kind, of")`,
			`create table parts_2a partition of parts_2 for values in ('a')`, `create table "Parts 2b" partition of parts_2 for values in ('b')`,
			`create table other (id bigint, day int, kind text, body text, primary key (id, day, kind)) partition by range (day)`,
			`create table other_1 partition of other default`, `insert into parts select n, 1, 'a', 'x' from generate_series(1, 40) n`)
		r.joins(t, conn, "parts", replication.JoinChanges)
		r.joins(t, conn, "other", replication.Join)
		var want []string
		id := 0
		// does runs statements about the next row in one transaction, and says what comes of it.
		does := func(sql string, events ...string) {
			t.Helper()
			id++
			r.db.Exec(t, strings.ReplaceAll(sql, "$", fmt.Sprint(id)))
			for _, e := range events {
				want = append(want, strings.ReplaceAll(e, "$", fmt.Sprint(id)))
			}
		}
		key := func(day int, kind string) string {
			return fmt.Sprintf(`{"id":"$","day":"%d","Kind, of":"%s"}`, day, kind)
		}
		beat := func() { r.db.Exec(t, beatNow) }
		there := func(leaf string, day int, kind string) string {
			return " to " + leaf + fmt.Sprintf("map[Kind, of:%s day:%d id:$]", kind, day)
		}
		deleted, moved := "delete parts_1 "+key(1, "a"), "move parts_1 "+key(1, "a")+there("parts_2a", 11, "a")

		does(`update parts set day = 11 where id = $`, deleted)
		beat()
		does(`update parts set day = 11 where id = $`, deleted) // nobody asks
		r.db.Exec(t, `insert into lapse.covered (relation, name, root, moves_by, ended)
			select c.oid, 'public.' || quote_ident(c.relname), 'public.parts', 'day', false from pg_class c where c.relname ~* '^parts.[12]' and c.relkind = 'r'`)
		does(`update parts set day = 11 where id = $`, deleted) // somebody says that one does
		beat()
		r.once(t)
		does(`update parts set day = 11 where id = $`, deleted) // and the next heartbeat takes it back
		r.asksForMoves(t, "parts", 1, "detect")
		does(`update parts set day = 11 where id = $`, deleted) // and no heartbeat has found it
		r.once(t)
		beat()
		does(`update parts set day = 11 where id = $`, moved)
		does(`update parts set day = 11, "Kind, of" = 'b' where id = $`, "move parts_1 "+key(1, "a")+there(`"Parts 2b"`, 11, "b"))
		does(`update parts set day = 2 where id = $`)
		does(`insert into parts values (1000 + $, 1, 'a'); delete from parts where id = $`, deleted)
		does(`update parts set id = 100 + $, day = 11 where id = $`, deleted)
		does(`delete from parts where id = $; insert into parts values ($, 2, 'a')`, deleted)
		does(`delete from parts where id = $; insert into parts values ($, 11, 'a')`, moved) // nothing in the WAL tells it from a move
		does(`delete from parts where id = $; update parts set body = 'y' where id = 40; insert into parts values ($, 11, 'a')`, deleted)
		does(`delete from parts where id = $; insert into other values ($, 11, 'a')`, deleted)
		does(`update parts set day = 11 where id = $; delete from parts where id = $`, moved, "delete parts_2a "+key(11, "a"))
		does(`begin; savepoint s; update parts set day = 11 where id = $; rollback to s; delete from parts where id = $; commit`, deleted)
		does(`update parts set body = repeat('x', 3000000) where id = $; update parts set day = 11 where id = $`, moved)
		does(`delete from parts where id = $; insert into parts values ($, 11, 'a', repeat('x', 17000000))`, deleted) // too long to be read
		r.db.Exec(t, `update parts set day = 12 where id in (6, 7) and day = 11`)                                     // within its partition
		r.once(t)
		r.db.Exec(t, `update parts set day = 11 where id in (20, 21, 22)`, `update parts set day = day - 10 where id in (20, 22)`)
		for _, n := range []string{"20", "21", "22"} {
			want = append(want, strings.ReplaceAll(moved, "$", n))
		}
		for _, n := range []string{"20", "22"} {
			want = append(want, strings.ReplaceAll("move parts_2a "+key(11, "a")+there("parts_1", 1, "a"), "$", n))
		}
		id = 22
		r.db.Exec(t, `create function busy() returns trigger language plpgsql as $$ begin update public.parts set body = 'y' where id = 40; return new; end $$`,
			`create trigger busy before insert on parts_2a for each row when (new.id = 23) execute function busy()`)
		does(`update parts set day = 11 where id = $`, deleted) // a trigger writes in between
		r.db.Exec(t, `create table parts_3 partition of parts for values from (20) to (30)`)
		does(`update parts set day = 21 where id = $`, deleted)
		beat()
		does(`update parts set day = 21 where id = $`, "move parts_1 "+key(1, "a")+there("parts_3", 21, "a"))
		r.db.Exec(t, `alter table parts rename column day to today`)
		does(`update parts set today = 11 where id = $`, `delete parts_1 {"id":"$","today":"1","Kind, of":"a"}`)
		r.db.Exec(t, `alter table parts rename column today to day`)
		r.db.Exec(t, `create unique index named on parts_1 (id)`, `alter table parts_1 replica identity using index named`)
		does(`update parts set day = 11, "Kind, of" = 'b' where id = $`, `move parts_1 {"id":"$"} to "Parts 2b"map[id:$]`)
		r.db.Exec(t, `alter table parts_1 replica identity full`)
		does(`update parts set day = 11 where id = $`, `delete parts_1 {}`)
		r.db.Exec(t, `alter table parts_1 replica identity default`, `alter table parts detach partition parts_3`)
		if r.db.Major > 14 { // where a server that has sent a table goes on sending it, up to the next heartbeat
			does(`delete from parts where id = $; insert into parts_3 values ($, 11, 'a')`, deleted)
		}
		beat()
		does(`delete from parts where id = $; insert into parts_3 values ($, 11, 'a')`, deleted)
		r.db.Exec(t, `alter table parts_3 rename to parts_4`, `delete from parts_4`, `alter table parts attach partition parts_4 for values from (20) to (30)`)
		beat()
		does(`update parts set day = 21 where id = $`, "move parts_1 "+key(1, "a")+there("parts_4", 21, "a"))
		r.once(t)
		r.asksForMoves(t, "parts", 2, "")
		does(`update parts set day = 11 where id = $`, moved)
		beat()
		does(`update parts set day = 11 where id = $`, deleted)
		r.once(t)
		twin.once(t)
		got, again := r.happened(t), twin.happened(t)
		if !slices.Equal(got, want) {
			t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if all, read := r.recordsOf(t, r.settings.System, r.settings.User), twin.recordsOf(t, twin.settings.System, twin.settings.User); !slices.Equal(all, read) {
			t.Errorf("%q\nread at once is\n%q", all, read)
		}
		if !slices.Equal(got, again) || fixture.One[bool](t, conn, `select lapse.publications_fault() is not null`) {
			t.Error("somebody has changed what is published")
		}
	})
}

// A move is one event, although it is two changes: none is missing or there twice when the auditor dies between the two.
func TestMovesAreWholeWhereverTheAuditorDies(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t))
	conn := r.db.Connect(t)
	r.db.Exec(t, `create table parts (id int, day int, primary key (id, day)) partition by list (day)`, `create table parts_1 partition of parts for values in (1)`,
		`create table parts_2 partition of parts for values in (2)`, `insert into parts select n, 1 from generate_series(1, 20) n`)
	r.joins(t, conn, "parts", replication.JoinChanges)
	r.asksForMoves(t, "parts", 1, "detect")
	r.db.Exec(t, beatNow)
	r.once(t)
	for i, before := range []string{firstAck, nextEvent, firstRecord} {
		r.db.Exec(t, `update parts set day = 3 - day`)
		r.dies(t, before)
		r.once(t)
		all := r.read(t, r.settings.User)
		count := map[string]int{}
		for _, record := range all {
			if record.Header("lapse-op") == "move" {
				count[record.Header("lapse-lsn")+record.Header("lapse-seq")]++
			}
		}
		if len(all) != 20*(i+1) || len(count) != len(all) {
			t.Errorf("before %s: %d events at %d places", before, len(all), len(count))
		}
	}
}
