package schemas

import "strings"

// Right is one right that the executor or the auditor has in schema lapse.
type Right struct {
	Role      string
	Privilege string // usage, select or execute
	On        string // schema, table or function
	Object    string // as GRANT names it
	Columns   []string
}

// Statement returns the GRANT that gives the right.
func (r *Right) Statement() string {
	on := r.Object
	if r.On != "table" {
		on = r.On + " " + on
	}
	privilege := r.Privilege
	if len(r.Columns) > 0 {
		privilege += " (" + strings.Join(r.Columns, ", ") + ")"
	}
	return "grant " + privilege + " on " + on + " to " + Identifier(r.Role)
}

// What executor and auditor may read in the newest catalog. lapse.quarantine contains keys: they may read only its other columns.
var (
	bothRead = []string{
		"covered", "gate", "halt", "heartbeat", "history", "hold", "hold_relation", "hold_state", "installation", "looked", "migration", "policy", "policy_state",
		"publication", "published",
	}
	executorReads = []string{
		"allowance", "batch", "batch_result", "breaker", "clock", "deleted_day", "deleter", "dropped", "memory", "pruning", "run", "shard", "worker",
	}
	quarantineRead = []string{
		"policy_id", "leaf", "sqlstate", "relation", "constraint_name", "tries", "entered_at", "tried_at", "retry_at",
		"column_name", "trigger_name", "trigger_function", "referred",
	}
)

// What they may call.
var (
	bothCall      = []string{"hold_faults()", "publications_fault()", "publications_trouble()", "system_identifier()", "timeline()"}
	auditorCalls  = []string{"alarm(text)", "beat(uuid, int, int, timestamptz, text)", "doubt()"}
	executorCalls = []string{
		"acquaint(int, int, oid[], name)", "advance_arming(int)", "changed_columns(oid, jsonb)", "close_run(uuid, bigint, bigint, bigint, timestamptz)", "code(oid[], boolean)",
		"begin_snapshot(int, int, interval)", "counted(int, int, bigint, boolean, timestamptz)",
		"end_run(uuid, text)", "end_snapshot(uuid, bigint, bigint, bigint, bigint, bigint, text)", "forgive(int, timestamptz)", "intruders(oid[], boolean)", "lease(uuid, text)", "leaves(oid)", "looked(int, int)", "ignore_marks(int)", "passed(int, int, interval)",
		"meaning(oid, oid)", "measure(int)", "note_due(uuid, bigint)", "open_run(int, int, uuid, oid[], timestamptz[], oid[], oid[], bigint)", "part_of(oid, oid, timestamptz, name)", "parts(oid[])",
		"prune(int)", "put_aside(bigint, bigint, text, text)", "reach(oid[])", "release(bigint, bigint, text)",
		"remember(uuid)", "report(text, int[], text[], text[], timestamptz[], text[])", "suspend_run(uuid, text)", "take_snapshot(uuid, pg_snapshot, timestamptz)", "statistics(uuid)", "take_rows(bigint, bigint, text, int)",
		"trip(int, int, text, bigint, bigint, bigint)", "unseen(oid[], boolean)",
	}
)

// Rights returns the rights of executor and auditor in the newest catalog. init grants them, and grants them again to a role that was
// dropped and made again.
func Rights(roles Roles) []Right {
	var all []Right
	for _, r := range []struct {
		role        string
		read, calls [][]string
	}{
		{roles.Executor, [][]string{bothRead, executorReads}, [][]string{bothCall, executorCalls}},
		{roles.Auditor, [][]string{bothRead}, [][]string{bothCall, auditorCalls}},
	} {
		all = append(all, Right{Role: r.role, Privilege: "usage", On: "schema", Object: "lapse"})
		for _, tables := range r.read {
			for _, table := range tables {
				all = append(all, Right{Role: r.role, Privilege: "select", On: "table", Object: "lapse." + table})
			}
		}
		all = append(all, Right{Role: r.role, Privilege: "select", On: "table", Object: "lapse.quarantine", Columns: quarantineRead})
		for _, functions := range r.calls {
			for _, function := range functions {
				all = append(all, Right{Role: r.role, Privilege: "execute", On: "function", Object: "lapse." + function})
			}
		}
	}
	return all
}
