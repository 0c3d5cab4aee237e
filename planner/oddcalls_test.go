package planner

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// odd are values of each type, as SQL, that nobody of ours passes. Runs and shards are those that are there.
var odd = map[string][]string{
	"int":           {"null", "0", "-1", "1", "2", "3", "2147483647", "-2147483648"},
	"bigint":        {"null", "0", "-1", "1", "9223372036854775807", "-9223372036854775808", "(select max(id) from lapse.shard)", "(select min(id) from lapse.shard)"},
	"uuid":          {"null", "gen_random_uuid()", "(select run from lapse.run order by number limit 1)", "(select run from lapse.run order by number desc limit 1)"},
	"text":          {"null", "''", "'x'", "repeat('x', 100000)", "'a''; delete from shop.sessions; --'", "'max_fraction'", "e'\\n'"},
	"name":          {"null", "''", "'last_seen'", "'no such column'"},
	"oid":           {"null", "0", "4294967295", "'lapse.gate'::regclass", "(select table_oid from lapse.gate limit 1)", "1259"},
	"boolean":       {"null", "true", "false"},
	"timestamptz":   {"null", "'infinity'", "'-infinity'", "now()", "'294276-12-31 23:59:59+00'", "'4714-11-24 00:00:00+00 BC'", "now() + interval '1 year'"},
	"interval":      {"null", "'0'", "'-1 day'", "'1000000 years'", "'1 day'"},
	"oid[]":         {"null", "'{}'", "'{0}'", "array[null]::oid[]", "array_fill('lapse.gate'::regclass::oid, array[2000])", "array(select table_oid from lapse.gate)", "'{{1,2},{3,4}}'", "array(select oid from pg_class)"},
	"jsonb":         {"null", "'{}'", "'[]'", `'[{"name": "id", "number": 1, "type": "bigint", "means": "{\"\": 1}"}, 1]'`},
	"int[]":         {"null", "'{}'", "'{1,2,1,null}'", "array_fill(1, array[2000])"},
	"text[]":        {"null", "'{}'", "array[null]::text[]", "array_fill(repeat('x', 1000), array[200])"},
	"pg_snapshot":   {"null", "pg_current_snapshot()", "'1:1:'", "'9223372036854775806:9223372036854775807:'"},
	"timestamptz[]": {"null", "'{}'", "'{infinity,-infinity}'", "array_fill(now(), array[2000])"},
}

// calls are the calls of the function with drawn arguments.
func oddCall(draw *rand.Rand, function string) string {
	name, arguments, _ := strings.Cut(strings.TrimSuffix(function, ")"), "(")
	var values []string
	for argument := range strings.SplitSeq(arguments, ", ") {
		if argument == "" {
			continue
		}
		of := odd[argument]
		if of == nil {
			panic("no odd values of " + argument)
		}
		values = append(values, fmt.Sprintf("(%s)::%s", of[draw.IntN(len(of))], argument))
	}
	return fmt.Sprintf("select %s(%s)", name, strings.Join(values, ", "))
}

// Whatever the executor's login passes to the functions that it may call: no row of a user's goes, and nothing that a person or the auditor
// has said is changed. What comes is a refusal with a SQLSTATE that was meant, and no fault of the server's.
func TestNoArgumentOfAStolenLoginsChangesWhatOthersSaid(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table paused (id bigint primary key, last_seen timestamptz)`)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		_ = w.open(&p)
		w.stolen()
		must(t, runSQL(w.exec, `set statement_timeout = '20s'`))
		const others = `select md5(string_agg(x, e'\n' order by x)) from (
			select to_jsonb(s)::text as x from shop.sessions s
			union all select 'p' || to_jsonb(s)::text from lapse.policy s union all select 's' || to_jsonb(s)::text from lapse.policy_state s
			union all select 'g' || to_jsonb(s)::text from lapse.gate s union all select 'h' || to_jsonb(s)::text from lapse.hold_state s
			union all select 'i' || to_jsonb(s)::text from lapse.installation s union all select 'y' || to_jsonb(s)::text from lapse.history s
			union all select 'c' || to_jsonb(s)::text from lapse.clock s union all select 'l' || to_jsonb(s)::text from lapse.halt s
			union all select 'd' || to_jsonb(s)::text from lapse.deleter s union all select 'b' || to_jsonb(s)::text from lapse.batch s
			union all select 'r' || to_jsonb(s)::text from lapse.batch_result s union all select 'q' || to_jsonb(s)::text from lapse.heartbeat s
			union all select 'o' || to_jsonb(s)::text from lapse.published s union all select 'a' || b.accepted::text from lapse.breaker b) a`
		before := valueOn[string](t, w.admin, others)
		seed := rand.Uint64()
		draw := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test's draws
		for _, right := range schemas.Rights(testRoles) {
			if right.On != "function" || right.Role != testRoles.Executor {
				continue
			}
			for range 25 {
				call := oddCall(draw, right.Object)
				err := runSQL(w.exec, call)
				if state := schemas.StateOf(err); strings.HasPrefix(state, "XX") || state == schemas.SQLStateQueryCanceled || err != nil && state == "" {
					t.Errorf("seed %d: %s: %v", seed, call, err)
				}
			}
			if after := valueOn[string](t, w.admin, others); after != before {
				t.Fatalf("seed %d: %s changed what is not the executor's", seed, right.Object)
			}
		}
		// A run that was opened with odd arguments has no cutoff to come.
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.run where cutoff > clock_timestamp() or not isfinite(cutoff)`); n != 0 {
			t.Errorf("seed %d: %d runs have a cutoff to come", seed, n)
		}
	})
}
