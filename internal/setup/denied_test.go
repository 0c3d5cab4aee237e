package setup_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// tablesSQL are the catalog's tables, each with a column that can be written.
const tablesSQL = `
	select c.relname::text, (select a.attname::text from pg_attribute a
	         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attidentity = '' order by a.attnum limit 1)
	  from pg_class c
	 where c.relnamespace = 'lapse'::regnamespace and c.relkind = 'r'
	 order by 1`

// auditorReads are the tables that the auditor may read.
var auditorReads = []string{
	"covered", "gate", "halt", "heartbeat", "history", "hold", "hold_relation", "hold_state", "installation", "looked", "migration", "policy", "policy_state", "publication", "published",
	"quarantine",
}

// ownersAlone are the tables that no login reads: what is held, what the auditor reads in the write-ahead log alone, what the checks of batches found, how tables are divided.
var ownersAlone = []string{"caller_secret", "examined", "hold_content", "hold_key", "low_water", "made_index", "quarantine_change", "restated", "snapshot", "tree"}

// pruned are evidence that goes in time, on terms that executor/prune_test.go tries.
var pruned = []string{"batch", "batch_result"}

// denied runs SQL that must be refused with one of the states: 42501 unless others are given.
func (p *place) denied(conn *pgx.Conn, sql string, states ...string) {
	p.t.Helper()
	if len(states) == 0 {
		states = []string{schemas.SQLStateInsufficientPrivilege}
	}
	tx, err := conn.Begin(p.t.Context())
	p.must(err)
	defer func() { _ = tx.Rollback(p.t.Context()) }()
	if _, err := tx.Exec(p.t.Context(), sql); !slices.Contains(states, stateOf(err)) {
		p.t.Errorf("%s does %s: %v, want SQLSTATE %s", conn.Config().User, sql, err, strings.Join(states, " or "))
	}
}

// mayRead are the tables of the catalog that a session can select from; whatever else it tries with any of them must be refused.
func (p *place) mayRead(conn *pgx.Conn, tables map[string]string) (reads []string) {
	p.t.Helper()
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		if _, err := conn.Exec(p.t.Context(), "select from lapse."+table+" limit 1"); err == nil {
			reads = append(reads, table)
		} else if stateOf(err) != schemas.SQLStateInsufficientPrivilege {
			p.t.Errorf("read %s: %v", table, err)
		}
		fill := strings.NewReplacer("TABLE", "lapse."+table, "COLUMN", tables[table])
		for _, attempt := range []string{
			"insert into TABLE default values", "delete from TABLE where false", "truncate TABLE",
			"update TABLE set COLUMN = COLUMN where false", "lock table TABLE in exclusive mode",
			"alter table TABLE disable trigger all", "create trigger t before insert on TABLE execute function lapse.refuse_change()",
		} {
			p.denied(conn, fill.Replace(attempt))
		}
	}
	return reads
}

// nobodys are what none of the four roles may do.
func (p *place) nobodys(conn *pgx.Conn, table string) {
	p.t.Helper()
	for _, sql := range []string{
		"alter table " + table + " add column c int", "drop table " + table, "truncate " + table,
		"create role x", "alter role current_user superuser", "create extension plpgsql schema lapse",
		"copy (select 1) to program 'true'", "select pg_read_file('PG_VERSION')", "set session authorization postgres", "set role postgres",
		"set session_replication_role = replica",
	} {
		p.denied(conn, sql, schemas.SQLStateInsufficientPrivilege, "42710") // the extension is there
	}
}

func TestNoRoleCanDoWhatIsNotItsPart(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		app, table := p.table("app")
		p.must(p.apply(p.admin, table))
		_, other := p.table("other")
		slot := "denied_" + db.Name
		db.Exec(t, fmt.Sprintf("select pg_create_logical_replication_slot('%s', 'pgoutput')", slot))
		t.Cleanup(func() {
			_, err := p.admin.Exec(context.WithoutCancel(t.Context()), "select pg_drop_replication_slot($1)", slot)
			p.must(err)
		})
		deleter := p.deleter(app)
		// A deleter cannot log in. Here somebody lets it.
		if _, err := pgx.Connect(t.Context(), db.As(deleter)); stateOf(err) != "28000" {
			t.Errorf("a deleter logs in: %v", err)
		}
		db.Exec(t, "alter role "+deleter+" login")

		tables := map[string]string{}
		rows, err := p.admin.Query(t.Context(), tablesSQL)
		p.must(err)
		var name, column string
		_, err = pgx.ForEachRow(rows, []any{&name, &column}, func() error { tables[name] = column; return nil })
		p.must(err)
		all := slices.Sorted(maps.Keys(tables))
		executorReads := slices.DeleteFunc(all, func(table string) bool { return slices.Contains(ownersAlone, table) })

		roles := []string{p.roles.Owner, p.roles.Executor, p.roles.Auditor, deleter}
		session := map[string]*pgx.Conn{}
		for _, role := range roles {
			conn := db.ConnectAs(t, role)
			session[role] = conn
			p.nobodys(conn, other)
			p.denied(conn, "delete from "+other)
			p.denied(conn, "select from "+other)
			for _, another := range roles {
				if another != role {
					p.denied(conn, "set role "+another)
				}
			}
			if role != p.roles.Auditor {
				p.denied(conn, fmt.Sprintf("select pg_logical_slot_get_binary_changes('%s', null, null, 'proto_version', '1', 'publication_names', 'p')", slot))
				p.denied(conn, fmt.Sprintf("select pg_replication_slot_advance('%s', pg_current_wal_lsn())", slot))
				p.denied(conn, fmt.Sprintf("select pg_drop_replication_slot('%s')", slot))
				p.denied(conn, "select pg_create_logical_replication_slot('denied', 'pgoutput')")
			}
			if role == p.roles.Owner {
				continue
			}
			p.denied(conn, "create table lapse.mine ()")
			p.denied(conn, "create function lapse.mine() returns int language sql as 'select 1'")
			p.denied(conn, "alter function lapse.enter(lapse.claim, lapse.work, int, int, int, bytea) security invoker")
			p.denied(conn, "drop function lapse.pin()")
			p.denied(conn, "drop schema lapse cascade")
			p.denied(conn, "alter schema lapse owner to current_user")
			p.denied(conn, "comment on table lapse.run is 'mine'")
		}
		for role, reads := range map[string][]string{p.roles.Executor: executorReads, p.roles.Auditor: auditorReads, deleter: nil} {
			if got := p.mayRead(session[role], tables); !slices.Equal(got, reads) {
				t.Errorf("%s reads %v, want %v", role, got, reads)
			}
		}

		// The executor deletes by the functions only, and makes no evidence; the auditor deletes nothing; the owner of the catalog has
		// no right on anybody's table, and cannot change evidence that is there.
		executor, auditor, owner := session[p.roles.Executor], session[p.roles.Auditor], session[p.roles.Owner]
		for _, conn := range []*pgx.Conn{executor, auditor, owner} {
			p.denied(conn, "delete from "+table)
			p.denied(conn, "select from "+table)
			p.denied(conn, "update "+table+" set note = null")
			p.denied(conn, "insert into "+table+" (id) values (-1)")
			p.denied(conn, "alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) set jit = on")
		}
		for _, conn := range []*pgx.Conn{executor, auditor} { // the schema's owner may drop what is in it, and cannot change it
			p.denied(conn, "drop function lapse.survey_1_1")
		}
		p.denied(executor, "select lapse.beat(gen_random_uuid(), 1, 1, now(), null)")
		p.denied(executor, "select lapse.alarm('x')")
		p.denied(executor, "select lapse.doubt()")
		for _, conn := range []*pgx.Conn{executor, auditor} {
			p.denied(conn, "select lapse.enter(null, null, 1, 1, 1, null)")
			p.denied(conn, "select lapse.record(null, null, null)")
			p.denied(conn, "select lapse.record_publications()")
			p.denied(conn, "select lapse.begin_publications()")
		}
		for _, conn := range []*pgx.Conn{auditor, session[deleter]} {
			p.denied(conn, "select lapse.open_run(1, 1, gen_random_uuid(), '{}', '{}', '{}', null, null)")
			p.denied(conn, "select lapse.lease(gen_random_uuid(), 'x')")
			p.denied(conn, "select lapse.advance_arming(1)")
		}
		p.denied(auditor, "select lapse.delete_1_1(null, null, null)")
		p.denied(auditor, "select lapse.survey_1_1(now(), null, 0)")
		for _, evidence := range []string{"policy", "policy_state", "halt", "clock", "batch", "batch_result", "history", "migration"} {
			p.denied(owner, fmt.Sprintf("update lapse.%[1]s set %[2]s = %[2]s", evidence, tables[evidence]))
			if !slices.Contains(pruned, evidence) {
				p.denied(owner, "delete from lapse."+evidence)
			}
			p.denied(owner, "truncate lapse."+evidence+" cascade")
		}
		// A deleter may do with its owner's tables what the owner may, and nothing by way of the catalog: its functions ask who called.
		p.denied(session[deleter], "select lapse.enter(null, null, 1, 1, 1, null)")
		p.denied(session[deleter], "select lapse.record(null, null, null)", schemas.SQLStateInsufficientPrivilege, "LP018")
		p.denied(session[deleter], "select lapse.delete_1_1(null, null, null)")
	})
}
