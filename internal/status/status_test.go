package status_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/internal/status"
	"lapse/planner/change"
)

func TestMain(m *testing.M) { pgtest.Main(m, catalog.Template(site.Options{})) }

// asked counts statements.
type asked int

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	*a++
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// However many policies there are, the database is asked as often; and what one has is not said of another.
func TestManyPoliciesAreReadWithAsManyQueriesAsOne(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		admin := db.Connect(t)
		config, err := pgx.ParseConfig(db.URL)
		fixture.Must(t, err)
		var n asked
		config.Tracer = &n
		conn, err := pgx.ConnectConfig(t.Context(), config)
		fixture.Must(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		read := func(policies int) (*status.Status, asked) {
			var entries []string
			for i := range policies {
				table := fmt.Sprint("t", i)
				db.Exec(t, "drop table if exists "+table+" cascade", "create table "+table+" (id bigint primary key, at timestamptz not null)", "create index on "+table+" (at)")
				entries = append(entries, fixture.Policy(table, "public."+table, "at", "30 days"))
			}
			fixture.Must(t, catalog.Apply(t.Context(), admin, catalog.Roles(), fixture.Policies(entries...), (*change.Change).Arm))
			db.Exec(t,
				"insert into lapse.policy_state (policy_id, state, version, reason) select policy_id, 'armed', version, 'why ' || name from lapse.gate",
				"insert into lapse.run (run, policy_id, version, cutoff, outcome) select gen_random_uuid(), policy_id, version, now(), 'done' from lapse.gate",
				`insert into lapse.run (run, policy_id, version, cutoff, outcome, deleted)
				 select gen_random_uuid(), policy_id, version, now(), 'done', 1000 + substr(name, 2)::int from lapse.gate`,
				`insert into lapse.shard (run, policy_id, version, leaf, cutoff, aside, retry_at, sqlstate, slice)
				 select r.run, r.policy_id, r.version, 0, now(), true, now(), n::text || '000', n::int
				   from (select distinct on (policy_id) * from lapse.run order by policy_id, number desc) r
				   join lapse.gate g using (policy_id), generate_series(10, 9 + substr(g.name, 2)::int) n`)
			before := n
			s, err := status.Read(t.Context(), conn, "", "")
			fixture.Must(t, err)
			return s, n - before
		}
		_, one := read(1)
		all, many := read(12)
		if one != many {
			t.Errorf("one policy takes %d statements, twelve %d", one, many)
		}
		if len(all.Policies) != 12 {
			t.Fatalf("it reads %d policies", len(all.Policies))
		}
		for i := range all.Policies {
			p, number := &all.Policies[i], 0
			_, err := fmt.Sscanf(string(p.Policy), "t%d", &number)
			fixture.Must(t, err)
			if p.Reason != "why "+string(p.Policy) || p.LastRun == nil || p.LastRun.Deleted != int64(1000+number) || p.LastRun.Ended != "with shards put aside" && number > 0 {
				t.Errorf("it says of %s: %q, last run %+v", p.Policy, p.Reason, p.LastRun)
			}
			if aside := p.Aside; (aside == nil) != (number == 0) || aside != nil && (aside.Shards != number || len(aside.SQLStates) != number) {
				t.Errorf("it says of %s: put aside %+v", p.Policy, aside)
			}
		}
	})
}
