package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/audit/verify"
	"lapse/internal/evidencetest"
	"lapse/internal/fixture"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// Somebody who has the database and the topics tries to hide one deletion. docs/evidence.md has all the ways, and names the test of each.

// Who takes a table out of its publication can put it back and on record again, in the transaction that deletes: nothing of what Lapse keeps
// differs then. The catalog's rows are other ones.
func TestATableThatWasTakenOutAndPutOnRecordAgainIsInTheLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	r := newRig(t, db, kafkatest.Broker(t))
	db.Exec(t, beatNow, `insert into elsewhere values (76), (77)`)
	r.once(t)
	before := r.changes(t)
	db.Exec(t, `do $$ begin
		alter publication lapse_deletes drop table elsewhere;
		delete from elsewhere where id = 76;
		alter publication lapse_deletes add table elsewhere;
		perform lapse.record_published(array['elsewhere'::regclass::oid]);
	end $$`, beatNow)
	r.once(t)
	const want = "ends public.elsewhere , begins public.elsewhere "
	if got := strings.Join(r.changes(t)[len(before):], ", "); got != want {
		t.Errorf("the log says %q of the tables, want %q", got, want)
	}
	db.Exec(t, `do $$ begin
		alter publication lapse_deletes set (publish = 'truncate');
		delete from elsewhere where id = 77;
		alter publication lapse_deletes set (publish = 'delete, truncate');
		update lapse.publication r set publication_xmin = p.xmin from pg_publication p where p.oid = r.oid;
	end $$`, beatNow)
	before = r.changes(t)
	r.once(t)
	if got := strings.Join(r.changes(t)[len(before):], ", "); !strings.Contains(got, want) {
		t.Errorf("after a change of what is published the log says %q of the tables", got)
	}
}

// What a session sets does not keep its deletions out of the write-ahead log: not its role in replication, and not that it comes from elsewhere.
func TestNoSettingOfASessionHidesADeletion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	r := newRig(t, db, kafkatest.Broker(t))
	origin := "origin_" + db.Name
	db.Exec(t, beatNow, `insert into elsewhere select generate_series(70, 79)`, `select pg_replication_origin_create('`+origin+`')`)
	for _, setting := range []string{
		`set session_replication_role = replica`, `set row_security = off`,
		`select pg_replication_origin_session_setup('` + origin + `'), pg_replication_origin_xact_setup('0/1', now() - interval '2 hours')`,
	} {
		conn := db.Connect(t)
		if _, err := conn.Exec(t.Context(), `begin; `+setting+`; delete from elsewhere where id = (select min(id) from elsewhere where id >= 70); commit`); err != nil {
			t.Fatalf("%s: %v", setting, err)
		}
		_ = conn.Close(t.Context())
	}
	dropOrigin(t, db, origin)
	r.once(t)
	// A replication origin chooses the time of its commits, and not their place: lapse verify finds it between two heartbeats.
	clock := verify.Clock{}
	for leaf, record := range r.readAll(t, r.settings.Log) {
		if parsed, err := evidence.ParseLogRecord(record.Value); err == nil {
			clock.Next(int64(leaf), parsed)
		}
	}
	if clock.Misdated != 1 {
		t.Errorf("%d transactions name a time that is not theirs", clock.Misdated)
	}
	for id := 70; id < 73; id++ {
		if !r.hasEvent(t, r.settings.User, id) {
			t.Errorf("the deletion of %d is no event", id)
		}
	}
}

// A session with a replication origin names any time. None keeps the auditor from going on, nor its log from being read.
func TestACommitTimeOutOfRangeIsTheNearest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	r := newRig(t, db, kafkatest.Broker(t))
	origin := "origin_" + db.Name
	db.Exec(t, beatNow, `insert into elsewhere select generate_series(70, 79)`, `select pg_replication_origin_create('`+origin+`')`)
	for i, at := range []string{"infinity", "-infinity", "1969-07-20", "12026-01-15", "2020-02-02"} {
		conn := db.Connect(t)
		for _, change := range []string{fmt.Sprintf(`delete from elsewhere where id = %d`, 70+i), beatNow} {
			_, err := conn.Exec(t.Context(), `begin; select pg_replication_origin_session_setup('`+origin+`'), pg_replication_origin_xact_setup('0/1', '`+at+`'); `+
				change+`; commit; select pg_replication_origin_session_reset()`)
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
		}
		_ = conn.Close(t.Context())
	}
	dropOrigin(t, db, origin)
	r.once(t, func(c *audit.Config) {
		c.RowsKeys["1970-01"], c.RowsKeys["9999-12"], c.RowsKeys["2020-02"] = evidencetest.RowsKey, evidencetest.RowsKey, nil
	})
	rootless := 0
	for _, record := range r.readAll(t, r.settings.Log) {
		read := asRead(r.settings.Log, record)
		if read.IsFence() {
			continue
		}
		parsed, err := evidence.ParseLogRecord(read.Value)
		if err != nil {
			t.Errorf("a record that nobody can read: %v", err)
			continue
		}
		if c, is := parsed.Content.(*evidence.TransactionContent); is && len(c.Observed) > 0 && c.Rows == nil {
			rootless++
		}
	}
	if rootless != 1 {
		t.Errorf("%d records have no root, want that of the month whose key was destroyed", rootless)
	}
	for id := 70; id < 75; id++ {
		if !r.hasEvent(t, r.settings.User, id) {
			t.Errorf("the deletion of %d is no event", id)
		}
	}
	r.verifyAccount(t)
}

// dropOrigin drops what is the server's, not the database's, as soon as the sessions that used it have ended.
func dropOrigin(t *testing.T, db *pgtest.DB, origin string) {
	t.Helper()
	conn := db.Connect(t)
	eventually(t, "the origin is dropped", func() bool {
		_, err := conn.Exec(t.Context(), `select pg_replication_origin_drop($1)`, origin)
		return err == nil
	})
}

// hasEvent reports whether a topic has an event of the row with an id.
func (r *rig) hasEvent(t *testing.T, topic string, id int) bool {
	t.Helper()
	return slices.ContainsFunc(r.read(t, topic), func(record kafkatest.Record) bool { return string(record.Key) == fmt.Sprintf(`{"id":"%d"}`, id) })
}

// What changes a table's pages without deleting a row is in no log that is decoded: here a superuser's own extension does it. Nor is what is
// deleted while the catalog says that the table is unlogged, which a superuser can write there. Nothing finds either.
func TestWhatIsDoneOutsideTheLogIsInNoRecord(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	r := newRig(t, db, kafkatest.Broker(t))
	db.Exec(t, beatNow, `insert into elsewhere values (80), (81), (82)`, `create extension pg_surgery`,
		`select heap_force_kill('elsewhere', array(select ctid from elsewhere where id = 80))`, `delete from elsewhere where id = 81`, `do $$ begin
			update pg_class set relpersistence = 'u' where oid = 'elsewhere'::regclass;
			delete from elsewhere where id = 82;
			update pg_class set relpersistence = 'p' where oid = 'elsewhere'::regclass;
		end $$`)
	r.once(t)
	begun := len(r.changes(t))
	db.Exec(t, beatNow)
	r.once(t)
	left := fixture.One[int](t, db.Connect(t), `select count(*) from elsewhere where id >= 80`)
	if left != 0 || r.hasEvent(t, r.settings.User, 80) || !r.hasEvent(t, r.settings.User, 81) || r.hasEvent(t, r.settings.User, 82) || len(r.changes(t)) != begun {
		t.Errorf("%d rows are left; the killed row has an event: %v, the deleted one: %v, the one of a table that was not logged: %v; of the tables the log says %q",
			left, r.hasEvent(t, r.settings.User, 80), r.hasEvent(t, r.settings.User, 81), r.hasEvent(t, r.settings.User, 82), r.changes(t)[begun:])
	}
}

// A table that has another name while a row is deleted has the event under that name, and its own oid.
func TestATableThatIsRenamedForADeletionIsKnownByItsOid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	r := newRig(t, db, kafkatest.Broker(t))
	db.Exec(t, beatNow, `insert into elsewhere values (90)`, `do $$ begin
		alter table elsewhere rename to nothing;
		delete from nothing where id = 90;
		alter table nothing rename to elsewhere;
	end $$`)
	r.once(t)
	oid := fixture.One[uint32](t, db.Connect(t), `select 'elsewhere'::regclass::oid`)
	for _, record := range r.read(t, r.settings.User) {
		if string(record.Key) != `{"id":"90"}` {
			continue
		}
		if table := record.Header("lapse-table"); table != "public.nothing" || !strings.Contains(string(record.Value), fmt.Sprintf(`"table_oid":%d`, oid)) {
			t.Errorf("the event is of %s: %s", table, record.Value)
		}
		return
	}
	t.Error("the deletion is no event")
}

// However a row is deleted, and whatever is done to its table meanwhile and put back and on record in the same transaction: there is its event, or the
// log says that the table was away.
func TestWhateverIsDoneToATableWhileARowIsDeletedLeavesATrace(t *testing.T) {
	t.Parallel()
	db := pgtest.Solo(t, pgtest.Newest(t), pgtest.Settings(map[string]string{"max_prepared_transactions": "2"}))
	r := newRig(t, db, kafkatest.Broker(t))
	db.Exec(t, `alter table elsewhere add column n bigint not null, add column parent bigint`, `create unique index other on elsewhere (n)`,
		`create table unpublished (id bigint primary key)`, `alter table elsewhere add foreign key (parent) references unpublished on delete cascade`,
		`insert into unpublished values (1)`, `insert into elsewhere select n, 1000 + n, case n when 106 then 1 end from generate_series(100, 120) n`, beatNow)
	r.once(t)
	const away = "ends public.elsewhere , begins public.elsewhere "
	const put = `; alter publication lapse_deletes drop table elsewhere; alter publication lapse_deletes add table elsewhere; perform lapse.record_published(array['elsewhere'::regclass::oid]); end $$`
	for _, c := range []struct {
		name    string
		do      []string
		events  int
		changes string
	}{
		{"two-phase commit", []string{`begin`, `delete from elsewhere where id = 100`, `prepare transaction 'p'`, `commit prepared 'p'`}, 1, ""},
		{"a savepoint", []string{`begin`, `savepoint a`, `delete from elsewhere where id = 101`, `release a`, `savepoint b`, `delete from elsewhere where id = 102`, `rollback to b`, `commit`}, 1, ""},
		{"no key but the whole row", []string{`do $$ begin alter table elsewhere replica identity full; delete from elsewhere where id = 103; alter table elsewhere replica identity default; end $$`}, 1, ""},
		{"another key", []string{`do $$ begin alter table elsewhere replica identity using index other; delete from elsewhere where id = 104; alter table elsewhere replica identity default; end $$`}, 1, ""},
		{"a cascade from a table that is not published", []string{`delete from unpublished`}, 1, ""},
		{"a row filter", []string{`do $$ begin alter publication lapse_deletes drop table elsewhere; alter publication lapse_deletes add table elsewhere where (id <> 107);
			delete from elsewhere where id = 107` + put}, 0, away},
		{"a column list", []string{`do $$ begin alter publication lapse_deletes drop table elsewhere; alter publication lapse_deletes add table elsewhere (id);
			delete from elsewhere where id = 108` + put}, 1, away},
		{"another table in its place", []string{`do $$ begin create table copied (like elsewhere including all); insert into copied select * from elsewhere where id <> 109;
			drop table elsewhere; alter table copied rename to elsewhere; alter publication lapse_deletes add table elsewhere;
			delete from lapse.published r where not exists (select from pg_class c where c.oid = r.relation); perform lapse.record_published(array['elsewhere'::regclass::oid]); end $$`}, 0, away},
	} {
		if db.Major < 15 && (c.name == "a row filter" || c.name == "a column list") {
			continue
		}
		before, begun := len(r.eventsOf(t, "public.elsewhere")), len(r.changes(t))
		conn := db.Connect(t)
		for _, statement := range c.do {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %s: %v", c.name, statement, err)
			}
		}
		db.Exec(t, beatNow)
		r.once(t)
		if events, changes := len(r.eventsOf(t, "public.elsewhere"))-before, strings.Join(r.changes(t)[begun:], ", "); events != c.events || changes != c.changes {
			t.Errorf("%s: %d events, and the log says %q of the tables; want %d and %q", c.name, events, changes, c.events, c.changes)
		}
	}
	if _, err := db.Connect(t).Exec(t.Context(), `alter table elsewhere set unlogged`); err == nil {
		t.Error("a published table becomes unlogged")
	}
}

// eventsOf are the user topic's events of a table.
func (r *rig) eventsOf(t *testing.T, table string) []kafkatest.Record {
	t.Helper()
	return slices.DeleteFunc(r.read(t, r.settings.User), func(record kafkatest.Record) bool { return record.Header("lapse-table") != table })
}
