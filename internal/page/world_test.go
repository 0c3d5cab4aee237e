package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/page"
	"lapse/internal/pgtest"
	"lapse/internal/status"
	"lapse/planner/change"
)

// The names are as hostile, and as long, as PostgreSQL and policy files take them.
const (
	hostileTable = `<img src=x onerror=alert(1)>"'&` + "\u202e"
	markup       = "markup"
)

var longest = strings.Repeat("a-policy-name-", 4) + "of-63.."

// world fills a database: policies in every state, and one with a year of deletions.
func world(t *testing.T, db *pgtest.DB) {
	t.Helper()
	tables := map[string]string{
		"sessions-30d": "public.sessions", "tokens": "public.tokens", "paused": "public.paused", "observed": "public.observed",
		"breaker": "public.breaker", "resisting": "public.resisting", longest: "public.long", markup: pgx.Identifier{"public", hostileTable}.Sanitize(),
	}
	var entries, statements []string
	for _, name := range []string{"sessions-30d", "tokens", "paused", "observed", "breaker", "resisting", longest, markup} {
		table := tables[name]
		statements = append(statements, "create table "+table+" (id bigint primary key, at timestamptz not null); create index on "+table+" (at)")
		entries = append(entries, fixture.Policy(name, "'"+strings.ReplaceAll(table, "'", "''")+"'", "at", "30 days", "every: 5 minutes"))
	}
	db.Exec(t, statements...)
	fixture.Must(t, catalog.Apply(t.Context(), db.Connect(t), catalog.Roles(), fixture.Policies(entries...), (*change.Change).Arm))
	db.Exec(t,
		"update lapse.gate set state = case name when 'paused' then 'paused' when 'observed' then 'observing' else 'armed' end",
		`insert into lapse.policy_state (policy_id, version, state, reason)
		 select policy_id, version, state, case state when 'paused' then 'until the migration is over <b>really</b>' else '' end from lapse.gate`,
		`insert into lapse.run (run, policy_id, version, cutoff, started_at, ended_at, outcome, deleted, cascaded, batches, due, left_due, watermark)
		 select gen_random_uuid(), policy_id, version, at, at, at + interval '42 seconds', 'done', 1000 + n * 37, n, 3, 1000 + n * 37, 0, at
		   from lapse.gate, generate_series(0, 24) n, lateral (select now() - n * interval '5 minutes' - interval '1 minute' as at) a
		  where state = 'armed' order by n desc`,
		`insert into lapse.deleted_day (policy_id, day, deleted)
		 select policy_id, current_date - n, (20000 * (1 + sin(n / 9.0)) + 15000 * (n % 7))::bigint from lapse.gate, generate_series(31, 364) n where name = 'sessions-30d'`,
		ledger("sessions-30d", 30, 40), ledger(longest, 12, 5), ledger(markup, 3, 2),
		`insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
		 select policy_id, table_oid, sha256(n::text::bytea), '{a-key-that-nobody-may-see}', '23503', now() + interval '1 hour' from lapse.gate, generate_series(1, 12) n where name = 'resisting'`,
		"insert into lapse.breaker (policy_id, version, due, table_rows) select policy_id, version, 812000, 1000000 from lapse.gate where name = 'breaker'",
		"insert into lapse.worker (holder, policy_id, state, reason) values ('db1.internal:4711', 0, 'running', '')",
		`insert into lapse.worker (holder, policy_id, state, reason)
		 select 'db1.internal:4711', policy_id, 'slow', 'policy tokens: a standby lags behind by 41 s' from lapse.gate where name = 'tokens'`,
	)
}

// ledger writes batches of so many days, some a day.
func ledger(policy string, days, batches int) string {
	return fmt.Sprintf(`
		with b as (
		  insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions, system_identifier, database_oid, history, timeline, xid, started_at, mac)
		  select gen_random_uuid(), policy_id, name, version, gen_random_uuid(), at, 0, 1, '{}', sha256('f'), '1', 1, 1, 1, '1', at, sha256('m')
		    from lapse.gate, generate_series(0, %d) day, generate_series(1, %d) n, lateral (select now() - day * interval '1 day' - n * interval '1 second' as at) a
		   where name = '%s'
		  returning batch, started_at)
		insert into lapse.batch_result (batch, picked, deleted, by_relation, finished_at) select batch, 900, 900, '{}', started_at from b`, days-1, batches, policy)
}

// asRunning is the status of a database whose slot somebody reads: the test has no auditor.
func asRunning(ctx context.Context, conn *pgx.Conn) (*status.Status, error) {
	s, err := status.Read(ctx, conn, "lapse", "")
	if err == nil {
		beat, room := s.At.Add(-4*time.Second), int64(48_300_000_000)
		s.Audit = status.Audit{Required: true, Slot: "lapse_app", Exists: true, Active: true, Behind: 1_240_000, Held: 18_900_000, Headroom: &room, LastBeat: &beat, History: 2}
		s.Holds = []status.HeldTable{{Table: "public.sessions", Holds: 2}}
	}
	return s, err
}

// running is a page beside an auditor.
func running(c *page.Config) {
	c.Status = asRunning
	c.Roles = catalog.Roles()
	c.Published = func() page.Published { return page.Published{System: 1_834_220, User: 5_104} }
	c.Witnesses = func(context.Context) string { return "the newest checkpoint that the quorum has cosigned is 12s old" }
}
