package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// hostile are settings that a DBA, or the database's owner, makes for all sessions in it, each by itself. since is the first
// version that has one.
var hostile = []struct {
	setting string
	since   int
	refused string // why nothing is deleted with it: a SQLSTATE, or a guard's reason
}{
	{setting: "statement_timeout = '1ms'"},
	{setting: "lock_timeout = '1ms'"},
	{setting: "idle_in_transaction_session_timeout = '1ms'"},
	{setting: "idle_session_timeout = '1ms'"},
	{setting: "row_security = on"},
	{setting: "default_transaction_isolation = 'serializable'"},
	{setting: "default_transaction_deferrable = on"},
	{setting: "search_path = evil, pg_catalog"},
	{setting: "session_replication_role = replica", refused: schemas.SQLStateReplica},
	{setting: "default_transaction_read_only = on", refused: string(guard.ReadOnly)},
	{setting: "synchronous_commit = remote_apply"},
	{setting: "jit = on; alter database {} set jit_above_cost = 0"},
	{setting: "constraint_exclusion = on"},
	{setting: "enable_indexscan = off; alter database {} set enable_indexonlyscan = off; alter database {} set enable_bitmapscan = off"},
	{setting: "plan_cache_mode = force_custom_plan"},
	{setting: "work_mem = '64kB'"},
	{setting: "transform_null_equals = on"},
	{setting: "timezone = 'America/Havana'; alter database {} set datestyle = 'German'; alter database {} set intervalstyle = 'sql_standard'"},
	{setting: "standard_conforming_strings = off; alter database {} set quote_all_identifiers = on; alter database {} set bytea_output = 'escape'"},
	{setting: "force_parallel_mode = regress", since: -15},
	{setting: "debug_parallel_query = regress", since: 16},
	{setting: "plpgsql.variable_conflict = use_column"},
	{setting: "plpgsql.extra_errors = 'all'"},
	{setting: "check_function_bodies = off"},
	{setting: "default_table_access_method = 'heap'; alter database {} set temp_buffers = '800kB'"},
	{setting: "client_min_messages = error"},
	{setting: "track_functions = 'all'"},
	{setting: "vacuum_freeze_min_age = 0"},
}

// From 17 on a database may bound every transaction. The session that takes leases has settings of its own.
func TestTheSessionThatTakesLeasesHasNoBoundOfTheDatabases(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, 18)
	db.Exec(t, fmt.Sprintf("alter database %s set transaction_timeout = '10s'", db.Name))
	s, err := batch.Connect(t.Context(), newExecutor(t, db).config.Database, "holder", time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if got := fixture.One[string](t, s.Control, "show transaction_timeout"); got != "0" {
		t.Errorf("transaction_timeout is %s", got)
	}
	if got := fixture.One[string](t, s.Batches, "show transaction_timeout"); got == "10s" || got == "0" {
		t.Errorf("that of batches is %s", got)
	}
}

// Whatever a database sets for its sessions, the due rows are deleted and the others stay, with what the foreign keys say.
//
//lapse:long
func TestWhateverADatabaseSetsForItsSessionsExactlyTheDueRowsGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 20)
		owned(t, db, "create table tags (session bigint references sessions on delete cascade)", "create index on tags (session)",
			"insert into tags select id from sessions")
		arm(t, db, policies(policy("p", "public.sessions")))
		goes(t, newExecutor(t, db), 5, "before")
		admin := db.Connect(t) // without what is set later
		set := func(sql string) {
			t.Helper()
			if _, err := admin.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range hostile {
			if h.since > db.Major || h.since < 0 && db.Major > -h.since {
				continue
			}
			due(t, db, 5, fortyDays)
			owned(t, db, "insert into tags select id from sessions where at < now() - interval '35 days'")
			set(fmt.Sprintf("alter database %s set %s", db.Name, strings.ReplaceAll(h.setting, "{}", db.Name)))
			s, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"})
			set(fmt.Sprintf("alter database %s reset all", db.Name))
			if h.refused != "" {
				var refusal *guard.Refusal
				if err == nil || !strings.Contains(err.Error(), h.refused) && !(errors.As(err, &refusal) && string(refusal.Reason) == h.refused) {
					t.Errorf("%s: %+v, %v, want that it is refused with %s", h.setting, s, err, h.refused)
				}
				goes(t, newExecutor(t, db), 5, "after "+h.setting)
				continue
			}
			left := one[string](t, db, "select (select count(*) from sessions) || ' ' || (select count(*) from tags)")
			if err != nil || only(t, s).Deleted != 5 || left != "20 20" {
				t.Errorf("%s: %+v, %v; left are %s, want 20 of each", h.setting, s, err, left)
			}
		}
	})
}
